"""The host does not know the conformance kit."""

from pathlib import Path

import a2a_gcs


def test_the_service_knows_nothing_of_the_conformance_kit():
    """No source of it says the kit's name or the beginnings of its messageIds; the agent that does is a test's."""
    sources = list(Path(a2a_gcs.__file__).parent.rglob("*.py"))
    assert len(sources) > 50
    for source in sources:
        text = source.read_text().lower()
        assert "tck" not in text, source
        assert "test-resubscribe-message-id" not in text, source
    assert "tck" in (Path(__file__).parents[2] / "support" / "tck_agent.py").read_text()
