"""What every test may use."""


def pytest_configure(config):
    """Registers the emulator's fixture also in a tree that was put on the path and not installed."""
    if not config.pluginmanager.has_plugin("fake_gcs"):
        config.pluginmanager.import_plugin("fake_gcs.pytest_plugin")
