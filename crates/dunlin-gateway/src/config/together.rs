//! Checks of listeners against each other: names, addresses and files.

use std::cell::RefCell;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::PathBuf;

use super::{
    AcmeChallenge, AcmeConfig, AdminConfig, Config, Fault, Field, ListenerConfig, NamePattern, OwnFiles,
    Place, RouteConfig, TransportKind,
};

/// Checks the names and addresses of listeners against each other.
pub(super) fn check_together(
    listeners: &[ListenerConfig],
    admin: Option<&AdminConfig>,
    faults: &RefCell<Vec<Fault>>,
) {
    let mut addresses = of_admin(admin);
    for redirect in listeners.iter().filter_map(|listener| listener.redirect.as_ref()) {
        check_address(&redirect.listen, false, &mut addresses, faults);
    }
    let sockets = listeners.iter().map(|listener| {
        (&listener.listen, listener.transport == TransportKind::Dtls, &*listener.name, &listener.place)
    });
    check_unique(sockets, addresses, faults);
    check_acme(listeners, faults);
    let mut files = HashMap::new();
    for frozen in listeners.iter().filter_map(|listener| listener.frozen.as_ref()) {
        if let Some(first) = files.insert(&frozen.file.value, &frozen.place) {
            let what = format!("{} is also the file of {first}", frozen.file.value.display());
            faults.borrow_mut().push(frozen.file.place.fault(what, "give each listener a file of its own"));
        }
    }
    for listener in listeners {
        let mut names = HashMap::new();
        for route in &listener.routes {
            if let Some(first) = names.insert(&route.name, &route.place) {
                let what = format!("duplicate name {:?}, first used at {first}", route.name);
                faults.borrow_mut().push(route.place.fault(what, "give each route a name of its own"));
            }
        }
    }
}

/// Warnings of routes, or names of them, that no client takes, because an earlier route takes them all.
pub(crate) fn without_clients(routes: &[RouteConfig]) -> impl Iterator<Item = Fault> {
    const ADVICE: &str = "leave it out; or put the route with fewer names or protocols first";
    let takes = |earlier: &RouteConfig, name: Option<&NamePattern>, route: &RouteConfig| {
        let has_name = earlier.sni.is_empty()
            || name.is_some_and(|name| earlier.sni.iter().any(|other| other.includes(name)));
        let has_protocols = earlier.alpn.is_empty()
            || !route.alpn.is_empty() && route.alpn.iter().all(|alpn| earlier.alpn.contains(alpn));
        has_name && has_protocols
    };
    routes.iter().enumerate().flat_map(move |(at, route)| {
        let names = route.sni.iter().map(Some).chain(route.sni.is_empty().then_some(None));
        names.filter_map(move |name| {
            let first = routes.iter().take(at).find(|earlier| takes(earlier, name, route))?;
            let who =
                name.map_or("every client".to_owned(), |name| format!("every client that asks for {name}"));
            let what = format!("{who} takes the route of {} before this one", first.place);
            Some(route.place.fault(what, ADVICE))
        })
    })
}

/// Warnings of addresses that a system cannot serve beside each other if its sockets at `[::]` also serve IPv4,
/// as on Linux by default. Inherited sockets may be for one family.
pub(crate) fn of_both_families(config: &Config) -> Vec<Fault> {
    let listeners = config.listeners.iter().map(|listener| {
        (listener.listen.value, listener.transport == TransportKind::Dtls, &listener.listen.place)
    });
    let redirects = config.listeners.iter().filter_map(|listener| listener.redirect.as_ref());
    let redirects = redirects.map(|redirect| (redirect.listen.value, false, &redirect.listen.place));
    let mut addresses = of_admin(config.common.admin.as_ref());
    addresses.extend(listeners.chain(redirects));
    let whole =
        addresses.iter().filter(|(of, ..)| of.is_ipv6() && of.ip().is_unspecified() && of.port() != 0);
    let pairs = whole.flat_map(|(whole, kind, at)| {
        let mut others = addresses.iter();
        let first = others.find(|(of, other, _)| of.is_ipv4() && of.port() == whole.port() && other == kind);
        first.map(|(address, _, place)| {
            place.fault(
                format!(
                    "{address} has the port of {whole}, the address of {at}, which also serves IPv4 clients"
                ),
                "keep the listener at [::] alone, or give this one another port",
            )
        })
    });
    pairs.collect()
}

/// The addresses of sockets, whether they are for datagrams, and their places.
pub(crate) type Addresses<'a> = Vec<(SocketAddr, bool, &'a Place)>;

/// The address of the administrative listener.
pub(crate) fn of_admin(admin: Option<&AdminConfig>) -> Addresses<'_> {
    admin.map(|admin| (admin.listen.value, false, &admin.listen.place)).into_iter().collect()
}

/// Checks that each listener has a name of its own, and an address of its own that is not among `addresses`.
/// A listener is its address, whether it receives datagrams, its name, and the place of its table.
pub(crate) fn check_unique<'a>(
    listeners: impl Iterator<Item = (&'a Field<SocketAddr>, bool, &'a str, &'a Place)>,
    mut addresses: Addresses<'a>,
    faults: &RefCell<Vec<Fault>>,
) {
    let mut names = HashMap::new();
    for (address, is_datagram, name, table) in listeners {
        check_address(address, is_datagram, &mut addresses, faults);
        if let Some(first) = names.insert(name, table) {
            let what = format!("duplicate name {name:?}, first used at {first}");
            faults.borrow_mut().push(table.fault(what, "give each listener a name of its own"));
        }
    }
}

fn check_address<'a>(
    Field { value: address, place }: &'a Field<SocketAddr>,
    is_datagram: bool,
    addresses: &mut Addresses<'a>,
    faults: &RefCell<Vec<Fault>>,
) {
    // The kernel lets one socket of a family have a port on all addresses, and then none on a single one.
    let is_taken = |other: &SocketAddr| {
        let is_covered = other == address || [other, address].iter().any(|of| of.ip().is_unspecified());
        other.port() == address.port() && other.is_ipv4() == address.is_ipv4() && is_covered
    };
    let first = addresses.iter().find(|(other, kind, _)| *kind == is_datagram && is_taken(other));
    if let Some((other, _, first)) = first.filter(|_| address.port() != 0) {
        let what = if other == address {
            format!("{address} is also the address of {first}")
        } else {
            format!("{address} has the port of {other}, the address of {first}")
        };
        faults.borrow_mut().push(place.fault(what, "give each listener an address of its own"));
    }
    addresses.push((*address, is_datagram, place));
}

/// Checks that the listeners meet the requirements of certificates by ACME.
fn check_acme(listeners: &[ListenerConfig], faults: &RefCell<Vec<Fault>>) {
    let mut files: HashMap<PathBuf, &AcmeConfig> = HashMap::new();
    let has_tls = listeners.iter().any(|listener| listener.transport == TransportKind::Tls);
    let has_http = listeners.iter().any(|listener| listener.redirect.is_some());
    let all = listeners.iter().flat_map(|listener| {
        let acme = listener.certificates.iter().filter_map(OwnFiles::acme);
        acme.map(move |acme| (listener, acme))
    });
    for (listener, acme) in all {
        let fault = |what: String, advice: &str| faults.borrow_mut().push(acme.place.fault(what, advice));
        if listener.raw_public_key {
            let what = "each renewal changes the key, but raw_public_key is for clients that know the key";
            fault(what.to_owned(), "leave raw_public_key out, or give chain and key instead of acme");
        }
        let (is_possible, needs) = match acme.challenge {
            AcmeChallenge::TlsAlpn01 => (has_tls, "a listener with transport = \"tls\""),
            AcmeChallenge::Http01 => (has_http, "a listener with a table [listener.redirect]"),
        };
        if !is_possible {
            let what = format!("the authority's challenge {} needs {needs}", acme.challenge.name());
            fault(what, "add one, or change challenge");
        }
        match files.insert(acme.file(), acme) {
            Some(other) if other.names != acme.names => {
                let what = format!("{} also names this certificate first, with other names", other.place);
                fault(what, "give the two stores of their own, or the same names");
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn warns_of_routes_that_no_client_takes() {
        let told = |routes: &[&str]| {
            let route = |keys| format!("[[listener.route]]\nto = \"[::1]:1\"\n{keys}\n");
            let text =
                "[[listener]]\nlisten = \"[::]:1\"\n[[listener.certificate]]\nchain = \"c\"\nkey = \"k\"\n";
            let text = text.to_owned() + &routes.iter().map(route).collect::<String>();
            let config =
                Config::parse(Path::new("g.toml"), &text).unwrap_or_else(|faults| panic!("{faults}"));
            without_clients(&config.listeners[0].routes).map(|fault| fault.to_string()).collect::<Vec<_>>()
        };
        let a = "sni = [\"a.example\"]";
        let a_too = "sni = [\"A.Example.\", \"b.example\"]";
        let below = "sni = [\"*.example\"]";
        let (mqtt, web) = ("alpn = [\"mqtt\"]", "alpn = [\"http/1.1\", \"mqtt\"]");
        for (dead, who) in [
            (&[a, a_too][..], "every client that asks for a.example takes"),
            (&[below, a], "every client that asks for a.example takes"),
            (&["", a], "every client that asks for a.example takes"),
            (&["", ""], "every client takes"),
            (&[a, below, &format!("{a}\n{mqtt}")], "every client that asks for a.example takes"),
            (&[web, mqtt], "every client takes"),
        ] {
            let found = told(dead);
            assert!(found.len() == 1 && found[0].contains(who), "{dead:?}: {found:#?}");
            assert!(found[0].contains("listener[0].route[0] before this one; leave it out"), "{found:#?}");
        }
        for alive in [&[a, below, ""][..], &[mqtt, web, ""], &[mqtt, ""], &[&format!("{a}\n{mqtt}"), a]] {
            assert_eq!(told(alive), Vec::<String>::new());
        }
    }

    #[test]
    fn warns_of_one_port_in_both_families() {
        let told = |addresses: &[(&str, &str)]| {
            let listener = |(at, (listen, transport)): (usize, &(&str, &str))| {
                format!(
                    "[[listener]]\nname = \"{at}\"\nlisten = \"{listen}\"\ntransport = \"{transport}\"\n\
                     [[listener.certificate]]\nchain = \"c\"\nkey = \"k\"\n[[listener.route]]\nto = \"[::1]:1\"\n"
                )
            };
            let text: String = addresses.iter().enumerate().map(listener).collect();
            let config =
                Config::parse(Path::new("g.toml"), &text).unwrap_or_else(|faults| panic!("{faults}"));
            of_both_families(&config).iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        for v4 in ["0.0.0.0:8883", "127.0.0.1:8883"] {
            for both in [[(v4, "tls"), ("[::]:8883", "tls")], [("[::]:8883", "dtls"), (v4, "dtls")]] {
                let found = told(&both);
                assert_eq!(found.len(), 1, "{found:?}");
                assert!(found[0].contains(&format!("{v4} has the port of [::]:8883")), "{found:?}");
            }
        }
        for apart in [
            [("0.0.0.0:8883", "tls"), ("[::]:8884", "tls")],
            [("0.0.0.0:8883", "tls"), ("[::1]:8883", "tls")],
            [("0.0.0.0:8883", "tls"), ("[::]:8883", "dtls")],
            [("0.0.0.0:0", "tls"), ("[::]:0", "tls")],
        ] {
            assert_eq!(told(&apart), Vec::<String>::new());
        }
    }
}
