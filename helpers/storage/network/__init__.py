"""The imposed network: profiles as data, and the relay that imposes and traces them."""

from helpers.storage.network.profiles import (
    FAULTS,
    Fault,
    Faults,
    FirstByte,
    Profile,
    get_profile,
    profile_names,
)
from helpers.storage.network.relay import Relay, open_relay
from helpers.storage.network.trace import Request

__all__ = [
    "FAULTS",
    "Fault",
    "Faults",
    "FirstByte",
    "Profile",
    "Relay",
    "Request",
    "get_profile",
    "open_relay",
    "profile_names",
]
