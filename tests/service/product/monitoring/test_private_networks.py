"""Every network where a webhook must not lead: its first, last and some inner address; and the public internet beside it."""

import pytest

from service.product.monitoring.private_networks import INNER_NETWORKS, private_network_reason

# By a word of the reason; Python 3.11 calls some of them global.
INNER = {
    "this host": "0.0.0.0",
    "private": "10.1.2.3 172.31.255.255 fd00:ec2::254",
    "provider": "100.64.0.1",
    "this machine": "127.0.0.1 ::1",
    "Azure": "168.63.129.16",
    "link-local": "169.254.169.254 64:ff9b::169.254.169.254 fe80::1%eth0",
    "IETF": "2001:2::1 192.0.0.8 192.0.0.9 192.0.0.15",
    "Oracle": "192.0.0.192 64:ff9b::192.0.0.192",
    "6to4": "2002:7f00:1::1 192.88.99.1",
    "measurements": "198.19.0.1",
    "examples": "203.0.113.7 2001:db8::1 3fff::1",
    "multicast": "224.0.0.1 ff02::1",
    "broadcast": "255.255.255.255",
    "no address": "::",
    "deprecated form": "::127.0.0.1 ::8.8.8.8",
    "as IPv6": "::ffff:127.0.0.1 ::ffff:8.8.8.8",
    "SIIT": "::ffff:0:169.254.169.254 ::ffff:0:8.8.8.8",
    # The last has an IPv4 address in the middle (RFC 6052, section 2.2).
    "NAT64": "64:ff9b:1::a9fe:a9fe 64:ff9b:1:a9fe:a9:fe00:808:808",
    "discarded": "100::1",
    "Teredo": "2001:0:a9fe:a9fe::1",
    "segments": "5f00::1",
    "site-local": "fec0::1",
    "not on the public internet": "4000::1 f000::1 200::1",
}
OUTSIDE = ["8.8.8.8", "9.255.255.255", "93.184.216.34", "172.32.0.1", "192.0.1.0", "223.255.255.255"]
OUTSIDE += ["2606:2800:220:1:248:1893:25c8:1946", "2001:4860:4860::8888", "2a00::1", "64:ff9b::5db8:d822"]


@pytest.mark.parametrize("reason", INNER)
def test_an_inner_address_is_inner_in_every_form(reason):
    for address in INNER[reason].split():
        assert reason in (private_network_reason(address) or ""), address


@pytest.mark.parametrize("network", INNER_NETWORKS, ids=str)
def test_a_network_is_inner_from_its_first_to_its_last_address(network):
    for address in (network[0], network[-1]):
        assert private_network_reason(str(address)), address


@pytest.mark.parametrize("address", OUTSIDE)
def test_others_are_outside(address):
    assert private_network_reason(address) is None
