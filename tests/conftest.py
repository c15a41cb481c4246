"""What every test may use."""

import os

import pytest


def pytest_configure(config):
    """Registers the emulator's fixture also in a tree that was put on the path and not installed."""
    if not config.pluginmanager.has_plugin("fake_gcs"):
        config.pluginmanager.import_plugin("fake_gcs.pytest_plugin")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Under A2A_GCS_REQUIRE=all a skip is a failure: the machine was to have everything."""
    report = yield
    if report.skipped and not hasattr(report, "wasxfail") and os.environ.get("A2A_GCS_REQUIRE") == "all":
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} was skipped, and A2A_GCS_REQUIRE=all allows no skips: {call.excinfo.value}"
    return report
