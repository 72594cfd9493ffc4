"""Options of the tests."""


def pytest_addoption(parser):
    parser.addoption(
        "--update-golden", action="store_true", help="write what the passes give into the golden files of tests/passes"
    )
