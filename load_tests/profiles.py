"""What each load profile is: stages of (until second, users, spawned per second)."""

# Requests at moments of their own: users who wait for an answer before they ask again hide how long others would wait.
FIXED_RATE = "fixed-rate"
PROFILES: dict[str, list[tuple[int, int, int]]] = {
    "smoke": [(3, 2, 2)],
    "steady": [(60, 16, 8)],
    "burst": [(10, 4, 4), (20, 64, 64), (30, 4, 64), (40, 64, 64), (50, 4, 64)],
    "train-while-serving": [(30, 8, 8)],
    FIXED_RATE: [(30, 1, 1)],
}
