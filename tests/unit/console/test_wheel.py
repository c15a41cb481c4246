"""What is installed."""

import subprocess
import sys
import zipfile
from pathlib import Path

import a2a_gcs.console

ROOT = Path(__file__).parents[3]


def test_templates_and_static_files_ship_in_the_wheel(tmp_path):
    """Every file of the console does."""
    built = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(tmp_path)]
    subprocess.run(built, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    console = ROOT / "service/a2a_gcs/console"
    assert Path(a2a_gcs.console.__file__).parent == console
    files = {f"a2a_gcs/console/{path.relative_to(console)}" for path in console.rglob("*.*") if path.suffix != ".pyc"}
    assert "a2a_gcs/console/templates/task.html" in files
    assert files <= set(zipfile.ZipFile(wheel).namelist())
