"""Network emulation: profiles, the proxy that emulates and traces them, and its calibration."""
