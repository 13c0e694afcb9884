"""The switch of the tests."""


def pytest_addoption(parser):
    """``--update`` writes expectations anew."""
    parser.addoption("--update", action="store_true", help="write expect.txt anew")
