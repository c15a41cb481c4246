"""The metrics of this process, and what changes them."""

from __future__ import annotations

import contextlib

from prometheus_client.parser import text_string_to_metric_families

from a2a_gcs.host.settings import Settings
from a2a_gcs.host.telemetry import configure_telemetry, exposition


class Series:
    """What every series of the package says, by name and labels, at one moment."""

    def __init__(self, text):
        self.values = {
            (sample.name.removeprefix("a2a_gcs_"), frozenset(sample.labels.items())): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name.startswith("a2a_gcs_")
        }

    @classmethod
    def now(cls):
        configure_telemetry(Settings(), environ={})
        return cls(exposition()[0].decode())

    def get(self, name, **labels):
        """The sum over all series of this name that have these labels."""
        wanted = {(key.rstrip("_"), value) for key, value in labels.items()}
        return sum(value for (of, has), value in self.values.items() if of == name and wanted <= has)

    def labels(self, name):
        """Every value that any label of any series has."""
        return {value for (_, has) in self.values for key, value in has if key == name}

    def names(self):
        return {name for name, _ in self.values}


class Growth:
    def __init__(self):
        self._before = Series.now()

    def __call__(self, name, **labels):
        """By how much a series has grown since."""
        return Series.now().get(name, **labels) - self._before.get(name, **labels)


@contextlib.contextmanager
def growth():
    """Other tests of this process have counted before; only what grows meanwhile counts."""
    yield Growth()
