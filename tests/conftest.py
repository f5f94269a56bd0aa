"""What holds for all tests."""

from hypothesis import HealthCheck, settings

# No timed assertions: a busy machine is no defect of the code.
settings.register_profile("loragate", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("loragate")
