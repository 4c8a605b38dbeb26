//! Hosts and origins in a form that can be compared.

use std::net::{IpAddr, Ipv6Addr};

use axum::http::uri::Authority;

/// The host of a request, or of a URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Host {
    Address(IpAddr),
    /// In lower case, without a final dot.
    Name(String),
}

impl Host {
    fn parse(text: &str) -> Self {
        let name = text.strip_suffix('.').unwrap_or(text);
        let address = match name.strip_prefix('[').and_then(|name| name.strip_suffix(']')) {
            Some(address) => address.parse::<Ipv6Addr>().ok().map(IpAddr::V6),
            None => name.parse().ok(),
        };
        match address {
            Some(address) => Self::Address(address.to_canonical()),
            None => Self::Name(name.to_ascii_lowercase()),
        }
    }

    /// Returns `true` for a host that always is this machine. Subdomains of `localhost` are not: some resolvers look them up.
    fn is_loopback(&self) -> bool {
        match self {
            Self::Address(address) => address.is_loopback(),
            Self::Name(name) => name == "localhost",
        }
    }
}

/// A host and the port after it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HostPort {
    host: Host,
    port: Option<u16>,
}

impl HostPort {
    /// Parses `host` or `host:port`. Returns `None` for anything else, such as a user name before the host.
    pub(super) fn parse(text: &str) -> Option<Self> {
        Self::from_authority(&Authority::try_from(text).ok()?)
    }

    pub(super) fn from_authority(authority: &Authority) -> Option<Self> {
        let host = authority.host();
        let port = match authority.as_str().strip_prefix(host)? {
            "" | ":" => None,
            port => Some(port.strip_prefix(':')?.parse().ok()?),
        };
        Some(Self { host: Host::parse(host), port }).filter(|_| !host.is_empty())
    }

    pub(super) fn is_loopback(&self) -> bool {
        self.host.is_loopback()
    }

    /// Returns `true` if a request for `other` is one for this host. A host without a port allows every port.
    pub(super) fn allows(&self, other: &Self) -> bool {
        self.host == other.host && (self.port.is_none() || self.port == other.port)
    }
}

/// The ports of an allowed origin.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Ports {
    Any,
    /// `None` if neither the origin nor its scheme has a port.
    One(Option<u16>),
}

/// An origin, such as `https://app.example.org`. The opaque origin `null` is rejected, because every page can have it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Origin {
    scheme: String,
    host: Host,
    ports: Ports,
}

impl Origin {
    /// Parses the value of a header.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (scheme, authority) = text.split_once("://")?;
        let HostPort { host, port } = HostPort::parse(authority)?;
        let scheme = scheme.to_ascii_lowercase();
        let default_port = match &*scheme {
            "http" => Some(80),
            "https" => Some(443),
            _ => None,
        };
        Some(Self { ports: Ports::One(port.or(default_port)), scheme, host })
    }

    /// Parses an allowed origin, whose port can be `*`.
    pub(super) fn parse_allowed(text: &str) -> Option<Self> {
        match text.strip_suffix(":*") {
            // `http://[::1]:*` has colons in its host, and `http://host:1:*` has two ports.
            Some(without_port) => {
                let authority = without_port.split_once("://")?.1;
                let has_port = HostPort::parse(authority)?.port.is_some();
                Self::parse(without_port)
                    .filter(|_| !has_port)
                    .map(|origin| Self { ports: Ports::Any, ..origin })
            }
            None => Self::parse(text),
        }
    }

    /// Returns `true` for a page of a web server on this machine.
    pub(super) fn is_loopback(&self) -> bool {
        matches!(&*self.scheme, "http" | "https") && self.host.is_loopback()
    }

    /// Returns `true` if `other` is this origin.
    pub(super) fn allows(&self, other: &Self) -> bool {
        self.scheme == other.scheme
            && self.host == other.host
            && (self.ports == Ports::Any || self.ports == other.ports)
    }
}
