"""The servers of the service's tests."""

from tests.service.conftest import fortress, site, weather_files

__all__ = ["fortress", "site", "weather_files"]
