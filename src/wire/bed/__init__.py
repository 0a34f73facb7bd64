"""Network emulation: profiles, and the proxy that emulates and traces them."""
