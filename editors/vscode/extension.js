// Starts `xlakit lsp` when a file of HLO is opened, and ends it with the editor.
"use strict";

const { workspace, window } = require("vscode");
const { LanguageClient, TransportKind } = require("vscode-languageclient/node");

let client;

async function activate() {
  const [command, ...args] = workspace.getConfiguration("hlo").get("command");
  const server = { command, args, transport: TransportKind.stdio };
  client = new LanguageClient("hlo", "HLO", server, { documentSelector: [{ language: "hlo" }] });
  try {
    await client.start();
  } catch (error) {
    client = undefined;
    window.showErrorMessage(
      `HLO: '${[command, ...args].join(" ")}' did not start (${error.message}). ` +
        "Install it with pip install 'xlakit[editor]', and set hlo.command to where it is."
    );
  }
}

function deactivate() {
  return client?.stop();
}

module.exports = { activate, deactivate };
