"""Networks forbidden to webhooks, with reasons; unlisted addresses belong to the public internet.

Python's `is_global` follows its own release of these registries and lets several of them pass.

References
----------
IANA, IPv4 and IPv6 Special-Purpose Address Registries. RFC 4291, section 2.4 (global unicast is 2000::/3).
"""

import ipaddress

_REASONS = {
    "0.0.0.0/8": "this host, on this network (RFC 1122)",
    "10.0.0.0/8": "private use (RFC 1918)",
    "100.64.0.0/10": "between a provider and its customers (RFC 6598)",
    "127.0.0.0/8": "this machine (RFC 1122)",
    "168.63.129.16/32": "the platform of Azure, reachable from every machine in it",
    "169.254.0.0/16": "link-local, with the secrets of clouds (RFC 3927)",
    "172.16.0.0/12": "private use (RFC 1918)",
    "192.0.0.0/24": "IETF protocols, and the secrets of Oracle's cloud (RFC 6890)",
    "192.0.2.0/24": "examples (RFC 5737)",
    "192.88.99.0/24": "relays of 6to4 (RFC 7526)",
    "192.168.0.0/16": "private use (RFC 1918)",
    "198.18.0.0/15": "measurements inside a network (RFC 2544)",
    "198.51.100.0/24": "examples (RFC 5737)",
    "203.0.113.0/24": "examples (RFC 5737)",
    "224.0.0.0/4": "multicast (RFC 5771)",
    "240.0.0.0/4": "reserved, and the broadcast (RFC 1112)",
    "::/128": "no address (RFC 4291)",
    "::1/128": "this machine (RFC 4291)",
    "::/96": "an IPv4 address in the deprecated form (RFC 4291)",
    "::ffff:0:0/96": "an IPv4 address as IPv6 (RFC 4291)",
    "::ffff:0:0:0/96": "an IPv4 address that the network translates (SIIT, RFC 2765)",
    "64:ff9b:1::/48": "an IPv4 address that the local network translates (NAT64, RFC 8215)",
    "100::/64": "discarded (RFC 6666)",
    "2001::/32": "an IPv4 address in a tunnel (Teredo, RFC 4380)",
    "2001::/23": "protocols of the IETF (RFC 2928)",
    "2001:db8::/32": "examples (RFC 3849)",
    "2002::/16": "an IPv4 address in a tunnel (6to4, RFC 3056)",
    "3fff::/20": "examples (RFC 9637)",
    "5f00::/16": "segments inside a network (RFC 9602)",
    "fc00::/7": "private use (RFC 4193)",
    "fe80::/10": "link-local (RFC 4291)",
    "fec0::/10": "site-local (RFC 3879)",
    "ff00::/8": "multicast (RFC 4291)",
    "::/3": "not on the public internet",
    "4000::/2": "not on the public internet",
    "8000::/1": "not on the public internet",
}
INNER_NETWORKS = {ipaddress.ip_network(network): reason for network, reason in _REASONS.items()}
# Resolvers of networks without IPv4 give public hosts such addresses (DNS64, RFC 6147): the last 32 bits decide.
NAT64 = ipaddress.IPv6Network("64:ff9b::/96")


def private_network_reason(address: str) -> str | None:
    """Return why an IPv4 or IPv6 address is not public, or None if it is; a zone (`%eth0`) is ignored."""
    ip = ipaddress.ip_address(address.partition("%")[0])
    if ip in NAT64:
        return private_network_reason(str(ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)))
    networks = (reason for network, reason in INNER_NETWORKS.items() if ip in network)
    return next(networks, None)
