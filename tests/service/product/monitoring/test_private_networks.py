"""Every network where a webhook must not lead: its first, last and some inner address; and the public internet beside it."""

import pytest

from service.product.monitoring.private_networks import INNER_NETWORKS, private_network_reason

# Address, and a word of the reason. A star: Python 3.11 calls it global.
INNER = [
    ("0.0.0.0", "this host"),
    ("10.1.2.3", "private"),
    ("100.64.0.1", "provider"),
    ("127.0.0.1", "this machine"),
    ("168.63.129.16", "Azure"),  # *
    ("169.254.169.254", "link-local"),
    ("172.31.255.255", "private"),
    ("192.0.0.8", "IETF"),  # *
    ("192.0.0.9", "IETF"),  # *
    ("192.0.0.15", "IETF"),  # *
    ("192.0.0.192", "Oracle"),  # *
    ("192.88.99.1", "6to4"),  # *
    ("198.19.0.1", "measurements"),
    ("203.0.113.7", "examples"),
    ("224.0.0.1", "multicast"),
    ("255.255.255.255", "broadcast"),
    ("::", "no address"),
    ("::1", "this machine"),
    ("::127.0.0.1", "form of old"),
    ("::8.8.8.8", "form of old"),  # *
    ("::ffff:127.0.0.1", "as IPv6"),
    ("::ffff:8.8.8.8", "as IPv6"),  # *
    ("::ffff:0:169.254.169.254", "SIIT"),  # *
    ("::ffff:0:8.8.8.8", "SIIT"),  # *
    ("64:ff9b::169.254.169.254", "link-local"),
    ("64:ff9b::192.0.0.192", "Oracle"),  # *
    ("64:ff9b:1::a9fe:a9fe", "NAT64"),
    ("64:ff9b:1:a9fe:a9:fe00:808:808", "NAT64"),  # * an IPv4 address in the middle (RFC 6052, section 2.2)
    ("100::1", "discarded"),
    ("2001:0:a9fe:a9fe::1", "Teredo"),
    ("2001:2::1", "IETF"),
    ("2001:db8::1", "examples"),
    ("2002:7f00:1::1", "6to4"),
    ("3fff::1", "examples"),  # *
    ("5f00::1", "segments"),  # *
    ("fd00:ec2::254", "private"),
    ("fe80::1%eth0", "link-local"),
    ("fec0::1", "site-local"),  # *
    ("ff02::1", "multicast"),
    ("4000::1", "not of the public internet"),  # *
    ("f000::1", "not of the public internet"),  # *
    ("200::1", "not of the public internet"),  # *
]
OUTSIDE = ["8.8.8.8", "9.255.255.255", "93.184.216.34", "172.32.0.1", "192.0.1.0", "223.255.255.255"]
OUTSIDE += ["2606:2800:220:1:248:1893:25c8:1946", "2001:4860:4860::8888", "2a00::1", "64:ff9b::5db8:d822"]


@pytest.mark.parametrize(("address", "reason"), INNER)
def test_an_inner_address_is_inner_in_every_form(address, reason):
    said = private_network_reason(address)
    assert said is not None and reason in said


@pytest.mark.parametrize("network", INNER_NETWORKS, ids=str)
def test_a_network_is_inner_from_its_first_to_its_last_address(network):
    for address in (network[0], network[-1]):
        assert private_network_reason(str(address)), address


@pytest.mark.parametrize("address", OUTSIDE)
def test_others_are_outside(address):
    assert private_network_reason(address) is None
