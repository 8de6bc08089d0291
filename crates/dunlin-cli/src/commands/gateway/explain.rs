//! `dunlin gateway explain`: which rule of a policy a client would get, and why.

use std::collections::BTreeSet;
use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use clap::Args as ClapArgs;
use dunlin::ClientHelloInfo;
use dunlin::auth::Psk;
use dunlin::crypto::HashAlgorithm;
use dunlin::wire::ProtocolVersion;
use dunlin_command::error::{Error, printable, warn};
use dunlin_command::faults::told;
use dunlin_command::files;
use dunlin_explain::Error as CaptureError;
use dunlin_gateway::config::{ListenerConfig, TransportKind};
use dunlin_gateway::policy::{
    self, Attribute, Claim, Client, Explanation, Hints, LivePolicy, OfferedPsk, Policy, Source, Turn,
};
use dunlin_gateway::{Config, RouteReport};
use serde::Serialize;

const EXAMPLES: &str = "\
Examples:
  dunlin gateway explain -c policy.toml --cert client.pem
  dunlin gateway explain -c policy.toml --psk-identity meter-7
  dunlin gateway explain -c policy.toml --hello capture.pcap --cert client.pem
  dunlin gateway explain -c policy.db --hello '16 0301 …' --address 192.0.2.1 --json
  dunlin gateway explain -c gateway.toml --listener mqtt --cert client.pem

For each client the command prints its attributes, every rule with its conditions and whether they hold, and the decisions: before the
ServerHello, by hints; after Finished, by the identity that the handshake proves; and in a later connection, in which a session names the
client. With a gateway's configuration it looks up to which device a pre-shared key belongs, and also prints the route at each listener,
and whether the key allow of the route admits the client. For listeners of DTLS it prints what the HelloRetryRequest names.
docs/policy.md explains policies, docs/gateway.md explains routes.

Exit status: 0 success, 1 failure, 2 wrong use.";

/// Print which rule of a policy a client would get, and why.
#[derive(ClapArgs)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The policy: a TOML file, or an SQLite database; or a gateway's configuration that names it.
    #[arg(long, short, value_name = "FILE")]
    config: PathBuf,
    /// The listener of the gateway's configuration, if its listeners have several policies.
    #[arg(long, value_name = "NAME")]
    listener: Option<String>,
    /// The client authenticates by this certificate or public key, in PEM. It is not verified. issuer_key is
    /// known if the file also has the certificate of its issuer.
    #[arg(long, value_name = "FILE", conflicts_with = "psk_identity")]
    cert: Option<PathBuf>,
    /// The client authenticates by the pre-shared key of this identity.
    #[arg(long, value_name = "IDENTITY")]
    psk_identity: Option<String>,
    /// The client's ClientHello: a capture (pcap or pcapng), whose ClientHellos are all explained, or records
    /// or a handshake message, as a file or in hexadecimal digits.
    #[arg(long, value_name = "FILE|HEX")]
    hello: Option<PathBuf>,
    /// The client's address. By default, that in the capture.
    #[arg(long, value_name = "ADDRESS")]
    address: Option<IpAddr>,
    /// Print JSON: an array with an object for each ClientHello.
    #[arg(long)]
    json: bool,
}

/// The explanation for a ClientHello, at listeners that treat it alike.
#[derive(Serialize)]
struct Explained {
    /// The client's address in the capture.
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<SocketAddr>,
    /// The names of the listeners of the configuration.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    listeners: Vec<String>,
    /// The client that the handshake would prove.
    #[serde(skip)]
    client: Option<Client>,
    /// Without a policy, the configuration has only the access to its routes.
    #[serde(flatten)]
    explanation: Option<Explanation>,
    /// The route at each listener of the configuration.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    routes: Vec<RouteReport>,
}

/// A ClientHello, and the client's address if it is known.
type Hello = (Option<SocketAddr>, Option<ClientHelloInfo>);

/// Runs `dunlin gateway explain`.
pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Result<(), Error> {
    if args.cert.is_none() && args.psk_identity.is_none() && args.hello.is_none() {
        let advice = "give --cert, --psk-identity or --hello";
        return Err(Error::usage("gateway explain", "no client is given", advice));
    }
    let (policy, listeners) = subject(args)?;
    let policy = policy.map(LivePolicy::open).transpose().map_err(|faults| told(&faults))?;
    let policy = policy.map(|policy| policy.current());
    let groups = Group::all(&listeners);
    let certified = args.cert.as_ref().map(|cert| credential(cert)).transpose()?;
    let hellos = match &args.hello {
        Some(hello) => hellos(hello)?,
        None => vec![(None, None)],
    };
    let mut explained: Vec<Explained> = vec![];
    for hello in &hellos {
        for group in &groups {
            let of_psk = || Some(group.client_with_psk(args.psk_identity.as_deref()?.as_bytes()));
            let client = certified.clone().or_else(of_psk);
            explained.push(explain(policy.as_ref(), group, args, client, hello));
        }
    }
    if args.json {
        serde_json::to_writer(&mut *out, &explained).map_err(std::io::Error::from)?;
        writeln!(out)?;
        return Ok(());
    }
    for (i, Explained { from, listeners, client, explanation, routes }) in explained.iter().enumerate() {
        if i > 0 {
            writeln!(out)?;
        }
        if let Some(from) = from {
            writeln!(out, "from: {from}")?;
        }
        if groups.len() > 1 {
            writeln!(out, "listeners: {}", listeners.join(", "))?;
        }
        match (explanation, client) {
            (Some(explanation), _) => write!(out, "{explanation}")?,
            (None, Some(client)) => {
                writeln!(out, "client: {client}")?;
                for (name, value) in client.facts() {
                    writeln!(out, "  {name} = \"{}\"", value.escape_debug())?;
                }
            }
            (None, None) => writeln!(out, "client: not authenticated")?,
        }
        for route in routes {
            write!(out, "{route}")?;
        }
    }
    Ok(())
}

/// The file of the policy: the argument, or the one that it names as a gateway's configuration, with the
/// listeners of the configuration.
fn subject(args: &Args) -> Result<(Option<PathBuf>, Vec<ListenerConfig>), Error> {
    let path = &args.config;
    if !Config::is_at(path) {
        return match &args.listener {
            None => Ok((Some(path.clone()), vec![])),
            Some(_) => {
                let what =
                    format!("--listener is given, but {} is no configuration of a gateway", path.display());
                Err(Error::usage("gateway explain", what, "leave --listener out"))
            }
        };
    }
    let config = Config::load(path).map_err(|faults| told(&faults))?;
    let is_meant = |name: &str| args.listener.as_deref().is_none_or(|meant| meant == name);
    let listeners: Vec<_> =
        config.listeners.into_iter().filter(|listener| is_meant(&listener.name)).collect();
    let files: BTreeSet<_> =
        listeners.iter().filter_map(|listener| Some(listener.policy.as_ref()?.value.clone())).collect();
    let mut files = files.into_iter();
    let has_access =
        listeners.iter().flat_map(|listener| &listener.routes).any(|route| !route.access.is_open());
    match (files.next(), files.next(), &args.listener) {
        (Some(file), None, _) => Ok((Some(file), listeners)),
        (None, ..) if has_access => Ok((None, listeners)),
        (Some(_), Some(_), _) => {
            Err(Error::failed(path.display(), "the listeners have several policies", "give --listener NAME"))
        }
        (None, _, Some(name)) => Err(Error::failed(
            path.display(),
            format!("no listener {} has a policy", printable(name)),
            "give the name of a listener with the key policy",
        )),
        (None, _, None) => Err(Error::failed(
            path.display(),
            "no listener has a policy",
            "add the key policy, or give its file",
        )),
    }
}

/// Listeners that treat every client alike, apart from their routes. A policy without listeners has one
/// group, which is empty.
struct Group<'a> {
    listeners: Vec<&'a ListenerConfig>,
}

impl<'a> Group<'a> {
    /// The listeners, grouped by their transports and their files of pre-shared keys.
    fn all(listeners: &'a [ListenerConfig]) -> Vec<Self> {
        let mut groups: Vec<Self> = vec![];
        for listener in listeners {
            let kind = |listener: &ListenerConfig| {
                (listener.transport, listener.clients.psk.as_ref().map(|file| file.value.clone()))
            };
            let is_same = |group: &&mut Self| {
                group.listeners.first().is_some_and(|other| kind(other) == kind(listener))
            };
            match groups.iter_mut().find(is_same) {
                Some(group) => group.listeners.push(listener),
                None => groups.push(Self { listeners: vec![listener] }),
            }
        }
        if groups.is_empty() { vec![Self { listeners: vec![] }] } else { groups }
    }

    /// Whether the listeners speak DTLS. Without listeners, the versions in the ClientHello decide.
    fn is_dtls(&self, hello: &ClientHelloInfo) -> bool {
        match self.listeners.first() {
            Some(listener) => listener.transport == TransportKind::Dtls,
            None => hello.versions.contains(&ProtocolVersion::DTLS1_3),
        }
    }

    /// The pre-shared key that the listeners find under this identity. Warns if they cannot read their keys.
    fn key(&self, identity: &[u8]) -> Option<Arc<Psk>> {
        self.listeners.first()?.find_psk(identity).unwrap_or_else(|faults| {
            faults.iter().for_each(|fault| warn(&fault.to_string()));
            None
        })
    }

    /// The client with the pre-shared key of this identity. The listeners look up to which device the key
    /// belongs; without listeners, that is unknown.
    fn client_with_psk(&self, identity: &[u8]) -> Client {
        if self.listeners.is_empty() {
            let mut client = Client::with_psk(identity, None);
            client.set_unknown(Attribute::Device);
            return client;
        }
        Client::with_psk(identity, self.key(identity).as_ref().and_then(|key| key.name()))
    }
}

fn explain(
    policy: Option<&Arc<Policy>>,
    group: &Group<'_>,
    args: &Args,
    client: Option<Client>,
    hello: &Hello,
) -> Explained {
    let from = hello.0;
    let info = hello.1.clone().unwrap_or_default();
    let address = args.address.or(from.map(|from| from.ip()));
    // Without a server's keys, a name that is text is taken for a pre-shared key, and anything else for a
    // ticket that does not open.
    let is_text =
        |name: &&Vec<u8>| std::str::from_utf8(name).is_ok_and(|text| !text.contains(char::is_control));
    let mut names: Vec<&[u8]> = info.psk_identities.iter().filter(is_text).map(Vec::as_slice).collect();
    if let (None, Some(identity)) = (&hello.1, &args.psk_identity) {
        names.push(identity.as_bytes());
    }
    let claim = |name: &&[u8]| Claim { source: Source::Psk, client: group.client_with_psk(name) };
    let claims = names.iter().take(1).map(claim).collect();
    let mut of_hello = policy::Hello::from(&info);
    if let (None, Some(identity)) = (&hello.1, &args.psk_identity) {
        let hash = group.key(identity.as_bytes()).map_or(HashAlgorithm::Sha256, |key| key.hash());
        of_hello.psk = Some(OfferedPsk { hash: Some(hash), external: Some(identity.clone().into()) });
    }
    let hints = Hints { hello: of_hello, address, claims, turn: Turn::of(&info), ..Hints::default() };
    let now_s = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default().as_secs();
    let route =
        |listener: &&ListenerConfig| RouteReport::of(listener, &info, client.as_ref(), address, now_s);
    Explained {
        from,
        listeners: group.listeners.iter().map(|listener| listener.name.clone()).collect(),
        explanation: policy.map(|policy| {
            if group.is_dtls(&info) {
                policy.explain_over_dtls(&hints, client.as_ref(), now_s)
            } else {
                policy.explain(&hints, client.as_ref(), now_s)
            }
        }),
        routes: group.listeners.iter().map(route).collect(),
        client,
    }
}

fn credential(path: &Path) -> Result<Client, Error> {
    let pem = files::read(path)?;
    policy::client_from_pem(&pem)
        .map_err(|error| Error::failed(path.display(), error, "give a certificate or public key in PEM"))
}

/// Reads the ClientHellos of a file, or of the argument itself if it is hexadecimal and no such file exists.
fn hellos(input: &Path) -> Result<Vec<Hello>, Error> {
    let text = input.to_string_lossy();
    let (name, content) = if input.exists() || text == "-" {
        (text.to_string(), files::read(input)?.to_vec())
    } else {
        (printable(&text), text.as_bytes().to_vec())
    };
    let failed = |why: &dyn std::fmt::Display| {
        Error::failed(
            &name,
            why,
            "give a capture with a ClientHello, or a ClientHello itself, in hexadecimal digits",
        )
    };
    match dunlin_explain::first_flights(&content) {
        Ok(flights) if flights.is_empty() => Err(failed(&"the capture holds no ClientHello")),
        Ok(flights) => {
            let read = |flight: &dunlin_explain::FirstFlight| {
                let info = policy::client_hello(flight.packets.iter().map(Vec::as_slice));
                Ok((Some(flight.client), Some(info.map_err(|error| failed(&error))?)))
            };
            flights.iter().map(read).collect()
        }
        Err(CaptureError::NotACapture) => {
            let bytes = digits(&content).unwrap_or(content);
            let info = policy::client_hello([bytes.as_slice()]).map_err(|error| failed(&error))?;
            Ok(vec![(None, Some(info))])
        }
        Err(error) => Err(failed(&error)),
    }
}

/// The bytes of hexadecimal digits, with white space and colons between them.
fn digits(content: &[u8]) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(content).ok()?;
    let digits: String = text.chars().filter(|c| !c.is_whitespace() && *c != ':').collect();
    base16ct::mixed::decode_vec(digits.strip_prefix("0x").unwrap_or(&digits)).ok()
}
