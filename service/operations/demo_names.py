"""Names for the demo: customers, cities, carriers and what they order."""

from typing import NamedTuple


class City(NamedTuple):
    """A city: degrees north and east, and thousands of people."""

    name: str
    latitude: float
    longitude: float
    inhabitants: int


class Warehouse(NamedTuple):
    """A place that parcels leave from: degrees north and east."""

    name: str
    latitude: float
    longitude: float


class Carrier(NamedTuple):
    """Who brings a parcel: share of the market, and what it adds to the log odds of being late."""

    name: str
    share: float
    trouble: float


class Category(NamedTuple):
    """What is ordered: its share, kilograms and euros of one, and what it adds to the log odds of being late."""

    name: str
    share: float
    weight_kg: float
    price: float
    trouble: float


CITIES = (
    City("Amsterdam", 52.37, 4.90, 920),
    City("Antwerp", 51.22, 4.40, 530),
    City("Barcelona", 41.39, 2.17, 1650),
    City("Berlin", 52.52, 13.40, 3750),
    City("Bilbao", 43.26, -2.93, 345),
    City("Bologna", 44.49, 11.34, 390),
    City("Bordeaux", 44.84, -0.58, 260),
    City("Brussels", 50.85, 4.35, 1210),
    City("Budapest", 47.50, 19.04, 1750),
    City("Copenhagen", 55.68, 12.57, 650),
    City("Dresden", 51.05, 13.74, 560),
    City("Dublin", 53.35, -6.26, 590),
    City("Frankfurt", 50.11, 8.68, 770),
    City("Gdańsk", 54.35, 18.65, 470),
    City("Geneva", 46.20, 6.14, 205),
    City("Gothenburg", 57.71, 11.97, 590),
    City("Graz", 47.07, 15.44, 290),
    City("Hamburg", 53.55, 9.99, 1850),
    City("Helsinki", 60.17, 24.94, 660),
    City("Kraków", 50.06, 19.94, 800),
    City("Lille", 50.63, 3.07, 235),
    City("Lisbon", 38.72, -9.14, 550),
    City("Lyon", 45.76, 4.84, 520),
    City("Madrid", 40.42, -3.70, 3300),
    City("Marseille", 43.30, 5.37, 870),
    City("Milan", 45.46, 9.19, 1370),
    City("Munich", 48.14, 11.58, 1490),
    City("Naples", 40.85, 14.27, 910),
    City("Oslo", 59.91, 10.75, 700),
    City("Paris", 48.86, 2.35, 2100),
    City("Porto", 41.15, -8.61, 230),
    City("Prague", 50.08, 14.44, 1300),
    City("Rome", 41.90, 12.50, 2750),
    City("Rotterdam", 51.92, 4.48, 655),
    City("Seville", 37.39, -5.98, 685),
    City("Stockholm", 59.33, 18.07, 980),
    City("Valencia", 39.47, -0.38, 800),
    City("Vienna", 48.21, 16.37, 1950),
    City("Warsaw", 52.23, 21.01, 1860),
    City("Zürich", 47.37, 8.54, 430),
)
WAREHOUSES = (
    Warehouse("Rotterdam Haven", 51.92, 4.48),
    Warehouse("Leipzig Nord", 51.34, 12.37),
    Warehouse("Lyon Est", 45.76, 4.84),
    Warehouse("Zaragoza", 41.65, -0.89),
    Warehouse("Malmö", 55.60, 13.00),
)
CARRIERS = (
    Carrier("Northline", 0.40, 0.0),
    Carrier("Velo Courier", 0.15, -0.5),
    Carrier("Heavyhaul", 0.12, 0.2),
    Carrier("Skybridge", 0.13, 0.1),
    Carrier("Postale", 0.20, 0.9),
)
CATEGORIES = (
    Category("books", 0.14, 0.4, 16, -0.1),
    Category("clothing", 0.17, 0.5, 38, 0.0),
    Category("shoes", 0.08, 1.1, 70, 0.0),
    Category("toys", 0.09, 0.9, 24, 0.0),
    Category("phones", 0.05, 0.4, 420, -0.4),
    Category("computers", 0.04, 2.6, 760, -0.2),
    Category("kitchen", 0.09, 2.2, 46, 0.1),
    Category("furniture", 0.05, 17.0, 180, 0.9),
    Category("garden", 0.06, 7.5, 52, 0.4),
    Category("sports", 0.07, 2.8, 58, 0.1),
    Category("cosmetics", 0.08, 0.3, 27, -0.2),
    Category("pet food", 0.08, 6.0, 31, 0.2),
)
WEATHER = ("dry", "rain", "storm", "snow")
FIRST_NAMES = (
    "Aino",
    "Amelie",
    "Anders",
    "Beatriz",
    "Carlo",
    "Chiara",
    "Daniel",
    "Elif",
    "Emma",
    "Fatima",
    "Hugo",
    "Ines",
    "Jakub",
    "Jan",
    "Joana",
    "Karim",
    "Katarzyna",
    "Lars",
    "Lena",
    "Luca",
    "Maja",
    "Marek",
    "Maria",
    "Nora",
    "Oskar",
    "Paolo",
    "Sofia",
    "Thomas",
    "Yusuf",
    "Zofia",
)
LAST_NAMES = (
    "Andersson",
    "Bauer",
    "Costa",
    "DeVries",
    "Dubois",
    "Fernandez",
    "Fischer",
    "Horvath",
    "Jansen",
    "Kowalska",
    "Larsen",
    "Moreau",
    "Novak",
    "Petit",
    "Ricci",
    "Romano",
    "Silva",
    "Virtanen",
    "Weber",
    "Yilmaz",
)
