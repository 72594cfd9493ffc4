"""The messages of HLO protos: names, numbers and types, one table.

Source: ``xla_data.proto`` and ``hlo.proto``, whose names and numbers are facts that every reader shares. The table
says ``field:type=number``, with ``*`` after the type for repeated, ``?`` for optional, ``{key,value}`` for a map and
``|name`` for membership of a oneof. A dotted name is a nested message.

Two additions. LayoutProto has the padding fields that the document "Shapes and layout" gives it and that XLA has since
reserved. HloModuleProto has ``config`` and ``header``: what XLA says on the first line of HLO text but keeps outside
HloModuleProto; written only where there is something to say, and skipped by other readers as unknown fields.
"""

MESSAGES = """
enum PrimitiveType
  PRIMITIVE_TYPE_INVALID=0 PRED=1 S1=30 S2=26 S4=21 S8=2 S16=3 S32=4 S64=5 U1=31 U2=27 U4=22 U8=6 U16=7 U32=8 U64=9
  F16=10 F32=11 BF16=16 F64=12 F8E5M2=19 F8E4M3=28 F8E4M3FN=20 F8E4M3B11FNUZ=23 F8E3M4=29 F8E5M2FNUZ=24
  F8E4M3FNUZ=25 F4E2M1FN=32 F8E8M0FNU=33 F6E3M2FN=35 F6E2M3FN=36 C64=15 C128=18 TUPLE=13 OPAQUE_TYPE=14 TOKEN=17
  BUFFER=34
message PaddingConfig
  dimensions:PaddingConfigDimension*=1
message PaddingConfig.PaddingConfigDimension
  edge_padding_low:int64=1 edge_padding_high:int64=2 interior_padding:int64=3
enum DimLevelType
  DIM_DENSE=0 DIM_COMPRESSED=1 DIM_SINGLETON=2 DIM_LOOSE_COMPRESSED=3
message TileProto
  dimensions:int64*=1
message SplitConfigProto
  dimension:int64=1 split_indices:int64*=2
message LayoutProto
  minor_to_major:int64*=1 dim_level_types:DimLevelType*=9 dim_unique:bool*=13 dim_ordered:bool*=14
  padded_dimensions:int64*=2 padding_value:PaddingValue=3 tiles:TileProto*=6
  tail_padding_alignment_in_elements:int64=16 element_size_in_bits:int64=7 memory_space:int64=8
  index_primitive_type:PrimitiveType=11 pointer_primitive_type:PrimitiveType=12 physical_shape:ShapeProto=10
  dynamic_shape_metadata_prefix_bytes:int64=15 split_configs:SplitConfigProto*=17
enum PaddingValue
  INVALID_PAD=0 ZERO_PAD=1 ONE_PAD=2 LOWEST_PAD=3 HIGHEST_PAD=4 UNKNOWN_PAD=5
message ShapeProto
  element_type:PrimitiveType=2 dimensions:int64*=3 is_dynamic_dimension:bool*=6 tuple_shapes:ShapeProto*=4
  layout:LayoutProto=5
message ProgramShapeProto
  parameters:ShapeProto*=1 result:ShapeProto=2 parameter_names:string*=3
enum ProfileType
  INVALID=0 WINDOW=1 FLAG=2 INTEGER=3
enum ProfileSource
  PROFILE_SOURCE_UNKNOWN_SOURCE=0 PROFILE_SOURCE_EMBEDDED=1 PROFILE_SOURCE_REMOTE=2
enum CompilationEvent
  COMPILATION_EVENT_UNKNOWN_EVENT=0 COMPILATION_EVENT_FIRST_COMPILATION=1 COMPILATION_EVENT_RECOMPILATION=2
enum ProfileGenerationStrategy
  PROFILE_GENERATION_STRATEGY_UNKNOWN=0 PROFILE_GENERATION_STRATEGY_GA=1 PROFILE_GENERATION_STRATEGY_FANTA=2
  PROFILE_GENERATION_STRATEGY_CFO=3 PROFILE_GENERATION_STRATEGY_EXHAUSTIVE=4 PROFILE_GENERATION_STRATEGY_LCM_GNN=5
  PROFILE_GENERATION_STRATEGY_LCM_MOE=6
message Payload
  value:bytes|payload_source=1 id:int64|payload_source=2
message OpMetadata
  op_type:string=1 op_name:string=2 source_file:string=3 source_line:int32=4 source_end_line:int32=17
  source_column:int32=18 source_end_column:int32=19 profile_type:ProfileType*=5
  size_of_generated_code_in_bytes:int64=8 size_of_memory_working_set_in_bytes:int64=9 profile_info:ProfileInfo=10
  deduplicated_name:string=12 stack_frame_id:int32=15 scheduling_name:string=16 metadata_payload:Payload=20
message OpMetadata.ProfileInfo
  profile_type:ProfileType*=1 relative_speedup:double=2 profile_source:ProfileSource=3
  compilation_event:CompilationEvent=4 profile_generation_strategy:ProfileGenerationStrategy=5
message DeviceAssignmentProto
  replica_count:int32=1 computation_count:int32=2 computation_devices:ComputationDevice*=3
message DeviceAssignmentProto.ComputationDevice
  replica_device_ids:int64*=1
message LiteralProto
  shape:ShapeProto=1 preds:bool*=2 s1s:bytes=30 s2s:bytes=26 s4s:bytes=21 s8s:bytes=15 u1s:bytes=31 u2s:bytes=27
  u4s:bytes=22 u8s:bytes=3 s32s:int32*=4 s64s:int64*=5 u32s:uint32*=6 u64s:uint64*=7 f32s:float*=8 f64s:double*=9
  c64s:float*=12 c128s:double*=18 tuple_literals:LiteralProto*=10 f16s:bytes=11 bf16s:bytes=13 u16s:bytes=16
  s16s:bytes=17 f4e2m1fns:bytes=32 f8e3m4s:bytes=29 f8e4m3b11fnuzs:bytes=23 f8e4m3fns:bytes=20 f8e4m3fnuzs:bytes=25
  f8e4m3s:bytes=28 f8e5m2fnuzs:bytes=24 f8e5m2s:bytes=19 f8e8m0fnus:bytes=33 f6e3m2fns:bytes=35 f6e2m3fns:bytes=36
  sparse_indices:int64*=14 dynamic_sizes:int32*=34
message WindowDimension
  size:int64=1 stride:int64=2 padding_low:int64=3 padding_high:int64=4 window_dilation:int64=5 base_dilation:int64=6
  window_reversal:bool=7
message Window
  dimensions:WindowDimension*=1
message GatherDimensionNumbers
  offset_dims:int64*=1 collapsed_slice_dims:int64*=2 start_index_map:int64*=3 index_vector_dim:int64=4
  operand_batching_dims:int64*=5 start_indices_batching_dims:int64*=6
message ScatterDimensionNumbers
  update_window_dims:int64*=1 inserted_window_dims:int64*=2 scatter_dims_to_operand_dims:int64*=3
  index_vector_dim:int64=4 input_batching_dims:int64*=5 scatter_indices_batching_dims:int64*=6
message ConvolutionDimensionNumbers
  input_batch_dimension:int64=7 input_feature_dimension:int64=8 input_spatial_dimensions:int64*=11
  kernel_input_feature_dimension:int64=3 kernel_output_feature_dimension:int64=4 kernel_spatial_dimensions:int64*=6
  output_batch_dimension:int64=9 output_feature_dimension:int64=10 output_spatial_dimensions:int64*=12
message SparsityConfig
  lhs:TensorSparsityConfig=1 rhs:TensorSparsityConfig=2
message SparsityConfig.TensorSparsityConfig
  num_non_zero:int64=1 block_size:int64=2 dimension:int64=3 stride:int64=4 idx:int32=5
enum PaddingType
  PADDING_INVALID=0 PADDING_VALID=1 PADDING_SAME=2
enum FftType
  FFT=0 IFFT=1 RFFT=2 IRFFT=3
message DotDimensionNumbers
  lhs_contracting_dimensions:int64*=1 rhs_contracting_dimensions:int64*=2 lhs_batch_dimensions:int64*=3
  rhs_batch_dimensions:int64*=4
message RaggedDotDimensionNumbers
  dot_dimension_numbers:DotDimensionNumbers=1 lhs_ragged_dimensions:int64*=2 rhs_group_dimensions:int64*=3
enum RandomDistribution
  RNG_INVALID=0 RNG_UNIFORM=1 RNG_NORMAL=2
enum RandomAlgorithm
  RNG_DEFAULT=0 RNG_THREE_FRY=1 RNG_PHILOX=2
message TriangularSolveOptions
  left_side:bool=1 lower:bool=2 unit_diagonal:bool=3 transpose_a:Transpose=4
enum TriangularSolveOptions.Transpose
  TRANSPOSE_INVALID=0 NO_TRANSPOSE=1 TRANSPOSE=2 ADJOINT=3
message CholeskyOptions
  lower:bool=1
message FrontendAttributes
  map:{string,string}=1
message Statistic
  stat_name:string=1 stat_val:double=2
message StatisticsViz
  stat_index_to_visualize:int64=1 statistics:Statistic*=2
message MeshProto
  axes:MeshAxis*=1 device_ids:int64*=2 iota_transform:IotaTransform=3
message MeshProto.MeshAxis
  name:string=1 size:int64=2
message MeshProto.IotaTransform
  reshape_dims:int64*=1 transpose_perm:int64*=2
message AxisRefProto
  mesh_axis_index:int64=1 sub_axis_info:SubAxis=2
message AxisRefProto.SubAxis
  pre_size:int64=1 size:int64=2
message NamedShardingProto
  mesh:MeshProto=2 dim_shardings:DimensionSharding*=3 replicated_axes:AxisRefProto*=4 unreduced_axes:AxisRefProto*=5
  reduction_op:ReductionOpProto=8 manual_axes:AxisRefProto*=7 metadata:OpMetadata*=6
message NamedShardingProto.DimensionSharding
  axes:AxisRefProto*=1 is_closed:bool=2
enum NamedShardingProto.ReductionOpProto
  SUM=0 MAX=1 MIN=2
message OpSharding
  type:Type=1 tile_shape:ShapeProto=2 tile_assignment_dimensions:int64*=3 tile_assignment_devices:int64*=4
  tuple_shardings:OpSharding*=5 replicate_on_last_tile_dim:bool=6 metadata:OpMetadata*=7 last_tile_dims:Type*=8
  iota_reshape_dims:int64*=9 iota_transpose_perm:int32*=10 is_shard_group:bool=11 shard_group_id:int64=12
  shard_group_type:ShardGroupType=13 named_sharding:NamedShardingProto=14
enum OpSharding.Type
  REPLICATED=0 MAXIMAL=1 TUPLE=2 OTHER=3 MANUAL=4 UNKNOWN=5 UNREDUCED=6
enum OpSharding.ShardGroupType
  AS=0 LIKE=1
message ReplicaGroup
  replica_ids:int64*=1
message MeshAxesReplicaGroupListProto
  mesh:MeshProto=1 axes:AxisRefProto*=2
message IotaReplicaGroupListProto
  num_replica_groups:int64=1 num_devices_per_group:int64=2 iota_reshape_dims:int64*=3 iota_transpose_perm:int32*=4
message CollectiveDeviceListProto
  replica_groups:ReplicaGroup*=1 iota_replica_group_list:IotaReplicaGroupListProto=2
message SourceTarget
  source:int64=1 target:int64=2
message ResultAccuracy
  mode:Mode|specs=1 tolerance:Tolerance|specs=2
enum ResultAccuracy.Mode
  DEFAULT=0 HIGHEST=1
message ResultAccuracy.Tolerance
  atol:double=1 rtol:double=2 ulps:int64=3
message PrecisionConfig
  operand_precision:Precision*=1 algorithm:Algorithm=2
enum PrecisionConfig.Precision
  DEFAULT=0 HIGH=1 HIGHEST=2
enum PrecisionConfig.Algorithm
  ALG_UNSET=0 ALG_DOT_ANY_F8_ANY_F8_F32=1 ALG_DOT_ANY_F8_ANY_F8_F32_FAST_ACCUM=2 ALG_DOT_F16_F16_F16=3
  ALG_DOT_F16_F16_F32=4 ALG_DOT_BF16_BF16_BF16=5 ALG_DOT_BF16_BF16_F32=6 ALG_DOT_BF16_BF16_F32_X3=7
  ALG_DOT_BF16_BF16_F32_X6=8 ALG_DOT_TF32_TF32_F32=9 ALG_DOT_TF32_TF32_F32_X3=10 ALG_DOT_F32_F32_F32=11
  ALG_DOT_F64_F64_F64=12 ALG_DOT_BF16_BF16_F32_X9=13
message ParameterReplication
  replicated_at_leaf_buffers:bool*=1
message OutputOperandAliasing
  output_shape_index:int64*=1 operand_index:int64=2 operand_shape_index:int64*=3
message OriginalArrayProto
  instruction_name:string=1 shape_index:int64*=2
message OriginalValueElementProto
  shape_index:int64*=1 original_array:OriginalArrayProto=2
message OriginalValueProto
  elements:OriginalValueElementProto*=1 is_synthetic_call:bool=2
enum CustomCallSchedule
  SCHEDULE_NONE=0 SCHEDULE_LATEST=1 SCHEDULE_EARLIEST=2
enum TriState
  TRI_STATE_UNSPECIFIED=0 TRI_STATE_TRUE=1 TRI_STATE_FALSE=2
enum ConvolutionKind
  CONVOLUTION_KIND_UNSET=0 CONVOLUTION_KIND_FPROP=1 CONVOLUTION_KIND_DGRAD=2 CONVOLUTION_KIND_WGRAD=3
enum CustomCallApiVersion
  API_VERSION_UNSPECIFIED=0 API_VERSION_ORIGINAL=1 API_VERSION_STATUS_RETURNING=2
  API_VERSION_STATUS_RETURNING_UNIFIED=3 API_VERSION_TYPED_FFI=4
message HloInstructionProto
  name:string=1 opcode:string=2 shape:ShapeProto=3 metadata:OpMetadata=7 literal:LiteralProto=8
  parameter_number:int64=9 fusion_kind:string=11 tuple_index:int64=13 dimensions:int64*=14 window:Window=15
  convolution_dimension_numbers:ConvolutionDimensionNumbers=16 feature_group_count:int64=50
  batch_group_count:int64=58 slice_dimensions:SliceDimensions*=17 exponent_bits:int32=18 mantissa_bits:int32=19
  dynamic_slice_sizes:int64*=20 padding_config:PaddingConfig=21 outfeed_config:bytes=22
  distribution:RandomDistribution=23 epsilon:float=24 feature_index:int64=25 channel_id:int64=26
  infeed_config:bytes=27 custom_call_target:string=28 outfeed_shape:ShapeProto=29
  dot_dimension_numbers:DotDimensionNumbers=30 ragged_dot_dimension_numbers:RaggedDotDimensionNumbers=90
  fft_type:FftType=31 fft_length:int64*=32 comparison_direction:string=63
  gather_dimension_numbers:GatherDimensionNumbers=33 gather_slice_sizes:int64*=34 id:int64=35 operand_ids:int64*=36
  control_predecessor_ids:int64*=37 called_computation_ids:int64*=38 sharding:OpSharding=40 backend_config:bytes=43
  backend_config_payload:Payload=99 replica_groups:ReplicaGroup*=49 all_reduce_id:int64=45
  use_global_device_ids:bool=71 is_host_transfer:bool=47 is_stable:bool=60
  scatter_dimension_numbers:ScatterDimensionNumbers=48 precision_config:PrecisionConfig=51
  source_target_pairs:SourceTarget*=52 domain_entry_sharding:OpSharding=54 domain_exit_sharding:OpSharding=55
  constrain_layout:bool=56 operand_shapes_with_layout:ShapeProto*=57
  triangular_solve_options:TriangularSolveOptions=59 cholesky_options:CholeskyOptions=62
  parameter_replication:ParameterReplication=61 custom_call_has_side_effect:bool=65
  output_operand_aliasing:OutputOperandAliasing*=74 custom_call_schedule:CustomCallSchedule=76 delta:int64=66
  indices_are_sorted:bool=67 frontend_attributes:FrontendAttributes=68 unique_indices:bool=69
  rng_algorithm:RandomAlgorithm=70 comparison_type:string=72 is_cross_program_prefetch:bool=73
  cross_program_prefetch_index:int32|optional_cross_program_prefetch_index=80 padding_type:PaddingType=75
  custom_call_api_version:CustomCallApiVersion=77 async_execution_thread:string=79 k:int64=81 largest:bool=85
  statistics_viz:StatisticsViz=82 collective_device_list:CollectiveDeviceListProto|replica_group_list=87
  iota_collective_device_list:IotaReplicaGroupListProto|replica_group_list=92
  mesh_axes_replica_group_list:MeshAxesReplicaGroupListProto|replica_group_list=93
  original_value:OriginalValueProto=88 is_composite:bool=89 result_accuracy:ResultAccuracy=91 is_reverse:bool=94
  num_carries:int64=95 is_associative:TriState=96 conv_kind:ConvolutionKind=97 sparsity_config:SparsityConfig=98
  has_dynamic_root:bool=100
message HloInstructionProto.SliceDimensions
  start:int64=1 limit:int64=2 stride:int64=3
message HloComputationProto
  name:string=1 instructions:HloInstructionProto*=2 program_shape:ProgramShapeProto=4 id:int64=5 root_id:int64=6
  is_fusion_computation:bool=7 execution_thread:string=8
message HloScheduleProto
  sequences:{int64,InstructionSequence}=1
message HloScheduleProto.InstructionSequence
  instruction_ids:int64*=1
enum Kind
  UNDEFINED_ALIAS=0 MAY_ALIAS=1 MUST_ALIAS=2
message HloInputOutputAliasProto
  entries:AliasEntryProto*=1
message HloInputOutputAliasProto.AliasEntryProto
  output_shape_index:int64*=1 parameter_number:int64=2 parameter_shape_index:int64*=3 kind:Kind=4
message HloBufferDonorProto
  entries:BufferDonorEntryProto*=1
message HloBufferDonorProto.BufferDonorEntryProto
  parameter_number:int64=1 parameter_shape_index:int64*=2
message CrossProgramPrefetch
  parameter:int64=1 index:int64*=2 offset:int64=3
message StackFrameIndexProto
  file_names:string*=1 function_names:string*=2 file_locations:FileLocation*=3 stack_frames:StackFrame*=4
message StackFrameIndexProto.FileLocation
  file_name_id:int32=1 function_name_id:int32=2 line:int32=3 end_line:int32=5 column:int32=4 end_column:int32=6
message StackFrameIndexProto.StackFrame
  file_location_id:int32=1 parent_frame_id:int32=2
message HloModuleProto
  name:string=1 entry_computation_name:string=2 entry_computation_id:int64=6 computations:HloComputationProto*=3
  host_program_shape:ProgramShapeProto=4 id:int64=5 pjrt_id:int64?=23 schedule:HloScheduleProto=7
  input_output_alias:HloInputOutputAliasProto=8 payloads:bytes*=22 buffer_donor:HloBufferDonorProto=18
  cross_program_prefetches:CrossProgramPrefetch*=10 is_dynamic:bool=11 spmd_output_sharding:OpSharding=12
  spmd_parameters_shardings:OpSharding*=14 use_auto_spmd_partitioning:bool=16 profile_info:ProfileInfo*=13
  device_assignment:DeviceAssignmentProto=15 stack_frame_index:StackFrameIndexProto=17
  frontend_attributes:FrontendAttributes=19 original_value_recovery_table:OriginalValueRecoveryTableProto=20
  device_type:string=21 debug_attributes:DebugAttributeTableEntryProto*=24 config:HloModuleConfigProto=2000
  header:HeaderAttribute*=2001
message HeaderAttribute
  name:string=1 text:string=2
enum HloModuleProto.ProfileType
  INVALID=0 FLAG=1 FUSION=2 LAYOUT=3 DOT=4 FLAGNET=5 SHARDING=6 SCHEDULE=7
message HloModuleProto.ProfileInfo
  profile_type:ProfileType=1 relative_speedup:double=2 profile_source:ProfileSource=3
  compilation_event:CompilationEvent=4 fingerprint:string=5 profile_generation_strategy:ProfileGenerationStrategy=6
  original_changelist:int64=7 changelist:int64=8
message HloProto
  hlo_module:HloModuleProto=1
message HloSnapshot
  hlo:HloProto=1 arguments:LiteralProto*=2 result:LiteralProto=3 execution_platform:string=4
message HloInputs
  arguments:LiteralProto*=1 arguments_descriptors:LiteralDescriptor*=2
message HloInputs.LiteralDescriptor
  version:int32=1 argument_size_bytes:int64=2
message HloUnoptimizedSnapshot
  hlo_module:HloModuleProto=1 partitions:HloInputs*=2 version:int32=3
message DebugAttributesProto
  log_mode:DebugLogModeProto=1 callback_id:int64=2 op_id:int64=3 partitioned:bool=4 operands_sharding:string=5
enum DebugAttributesProto.DebugLogModeProto
  NONE=0 DEFAULT=1 FUSION_DEBUGGER=2 NO_FUSION=3 GUARANTEED=4
message DebugAttributeTableEntryProto
  original_array:OriginalArrayProto=1 debug_attributes:DebugAttributesProto*=2
message OriginalValueRecoveryTableProto
  entries:Entry*=1
message OriginalValueRecoveryTableProto.Entry
  old_original_array:OriginalArrayProto=1 new_original_array:OriginalArrayProto=2 recovery_module:HloModuleProto=3
message HloModuleConfigProto
  replica_count:int64=4 num_partitions:int64=5 alias_passthrough_params:bool=17
  allow_spmd_sharding_propagation_to_output:bool*=27 allow_spmd_sharding_propagation_to_parameters:bool*=33
message HloModuleProtoWithConfig
  hlo_module:HloModuleProto=1 config:HloModuleConfigProto=2
message CompileOptionsProto
  argument_layouts:ShapeProto*=1 parameter_is_tupled_arguments:bool=2
  executable_build_options:ExecutableBuildOptionsProto=3 compile_portable_executable:bool=4 profile_version:int64=5
  env_option_overrides:{string,OptionOverrideProto}=7
message PyTreeDefProto
  nodes:PyTreeNodeDefProto*=1 interned_strings:string*=2
message PyTreeNodeDefProto
  arity:uint32=1 type:int32=2 dict_node:DictNodeProto=3
message DictNodeProto
  str_id:uint32*=1
message PprofProfile
  sample_type:PprofValueType*=1 sample:PprofSample*=2 location:PprofLocation*=4 function:PprofFunction*=5
  string_table:string*=6
message PprofValueType
  type:int64=1 unit:int64=2
message PprofSample
  location_id:uint64*=1 value:int64*=2 label:PprofLabel*=3
message PprofLabel
  key:int64=1 str:int64=2
message PprofLocation
  id:uint64=1 line:PprofLine*=4
message PprofLine
  function_id:uint64=1 line:int64=2
message PprofFunction
  id:uint64=1 name:int64=2 system_name:int64=3 filename:int64=4 start_line:int64=5
message XSpace
  planes:XPlane*=1 errors:string*=2 warnings:string*=3 hostnames:string*=4
message XPlane
  id:int64=1 name:string=2 lines:XLine*=3 event_metadata:{int64,XEventMetadata}=4 stat_metadata:{int64,XStatMetadata}=5
message XLine
  id:int64=1 display_id:int64=10 name:string=2 display_name:string=11 timestamp_ns:int64=3 duration_ps:int64=9
  events:XEvent*=4
message XEvent
  metadata_id:int64=1 offset_ps:int64|data=2 num_occurrences:int64|data=5 duration_ps:int64=3 stats:XStat*=4
message XStat
  metadata_id:int64=1 double_value:double|value=2 uint64_value:uint64|value=3 int64_value:int64|value=4
  str_value:string|value=5 bytes_value:bytes|value=6 ref_value:uint64|value=7
message XEventMetadata
  id:int64=1 name:string=2 display_name:string=4
message XStatMetadata
  id:int64=1 name:string=2
message OptionOverrideProto
  string_field:string|value=1 bool_field:bool|value=2 int_field:int64|value=3 double_field:double|value=4
message ExecutableBuildOptionsProto
  device_ordinal:int64=1 result_layout:ShapeProto=2 debug_options:DebugOptions=3 num_replicas:int64=4
  num_partitions:int64=5 use_spmd_partitioning:bool=6 use_auto_spmd_partitioning:bool=7
  device_assignment:DeviceAssignmentProto=9 allow_spmd_sharding_propagation_to_output:bool*=12 fdo_profile:bytes=14
  auto_spmd_partitioning_mesh_shape:int64*=16 auto_spmd_partitioning_mesh_ids:int64*=17
  allow_spmd_sharding_propagation_to_parameters:bool*=18 use_shardy_partitioner:bool=19
  exec_time_optimization_effort:float=20 memory_fitting_effort:float=21 optimization_level:int32=24
  memory_fitting_level:int32=25
message DebugOptions
  xla_disable_hlo_passes:string=30 xla_backend_optimization_level:int32=31 xla_gpu_cuda_data_dir:string=61
  xla_llvm_disable_expensive_passes:bool=73 xla_test_all_input_layouts:bool=91 xla_cpu_enable_fast_math:bool=99
  xla_gpu_enable_fast_min_max:bool=100 xla_force_host_platform_device_count:int32=102 xla_dump_to:string=109
  xla_dump_hlo_module_re:string=110 xla_dump_hlo_pass_re:string=111 xla_dump_hlo_as_text:bool=112
  xla_dump_hlo_as_proto:bool=113 xla_dump_hlo_as_dot:bool=114 xla_dump_hlo_as_url:bool=115
  xla_dump_hlo_as_html:bool=116 xla_dump_hlo_snapshots:bool=118 xla_cpu_fast_math_honor_nans:bool=120
  xla_cpu_fast_math_honor_infs:bool=121 xla_enable_hlo_passes_only:string=124
  xla_cpu_fast_math_honor_division:bool=126 xla_cpu_fast_math_honor_functions:bool=129
  xla_dump_max_hlo_modules:int32=132 xla_cpu_enable_xprof_traceme:bool=137 xla_dump_module_metadata:bool=144
  xla_dump_fusion_visualization:bool=149 xla_dump_compress_protos:bool=151 xla_dump_disable_metadata:bool=153
  xla_dump_hlo_pipeline_re:string=154 xla_dump_hlo_as_long_text:bool=164 xla_gpu_dump_autotune_results_to:string=222
  xla_gpu_load_autotune_results_from:string=223 xla_detailed_logging:bool=252 xla_enable_dumping:bool=253
  xla_gpu_enable_llvm_module_compilation_parallelism:bool=268 xla_gpu_dump_autotune_logs_to:string=292
  xla_gpu_kernel_cache_file:string=306 xla_gpu_per_fusion_autotune_cache_dir:string=310
  xla_gpu_experimental_autotune_cache_mode:int32=324
"""
