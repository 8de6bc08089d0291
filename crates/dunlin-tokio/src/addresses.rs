//! Addresses of servers: look-ups, and connections to the first address that answers (RFC 8305, Happy
//! Eyeballs).

use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use tokio::net::{TcpStream, lookup_host};
use tokio::time::sleep;

/// How long an attempt to connect runs alone before the next one begins beside it (RFC 8305 §5).
const ATTEMPT_DELAY: Duration = Duration::from_millis(250);

/// The most addresses of a name that count.
const MAX_ADDRESSES: usize = 16;

/// An IP address and a port, such as `192.0.2.1:443` or `[fe80::1%eth0]:443`. The zone of a link-local
/// address (RFC 4007 §11) is the name or the number of an interface.
///
/// # Errors
/// It is another text, or this machine has no such interface.
pub fn parse(text: &str) -> Result<SocketAddr, String> {
    let zoned = || {
        let (host, port) = text.strip_prefix('[')?.split_once("]:")?;
        let (ip, zone) = host.split_once('%')?;
        Some((ip.parse::<Ipv6Addr>().ok()?, zone, port.parse::<u16>().ok()?))
    };
    match (text.parse(), zoned()) {
        (Ok(address), _) => Ok(address),
        (_, Some((ip, zone, port))) => Ok(SocketAddrV6::new(ip, port, 0, scope(zone)?).into()),
        (Err(_), None) => {
            Err("not an IP address with a port, such as 192.0.2.1:443 or [2001:db8::1]:443".into())
        }
    }
}

/// The number of an interface.
#[cfg(target_os = "linux")]
fn scope(zone: &str) -> Result<u32, String> {
    let number = zone.parse().ok().or_else(|| nix::net::if_::if_nametoindex(zone).ok());
    number.ok_or_else(|| format!("this machine has no interface {zone:?}"))
}

/// Other systems get numbers only.
#[cfg(not(target_os = "linux"))]
fn scope(zone: &str) -> Result<u32, String> {
    zone.parse().map_err(|_| format!("write the number of the interface {zone:?}"))
}

/// The address of a peer; in IPv4 if a socket for both families shows an IPv4 address in its IPv6 form (RFC
/// 4291 §2.5.5.2).
pub fn plain(address: SocketAddr) -> SocketAddr {
    match address.ip().to_canonical() {
        ip @ IpAddr::V4(_) => SocketAddr::new(ip, address.port()),
        IpAddr::V6(_) => address,
    }
}

/// The host of `HOST:PORT` without its brackets, and the port.
///
/// # Errors
/// There is no port.
pub fn split(text: &str) -> io::Result<(&str, u16)> {
    let parts = text.rsplit_once(':').and_then(|(host, port)| Some((host, port.parse().ok()?)));
    let (host, port) = parts
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "it has no port; write HOST:PORT"))?;
    Ok((host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host), port))
}

/// The IP address of a host, without its zone (RFC 4007 §11); `None` if it is a name.
pub fn ip_of(host: &str) -> Option<IpAddr> {
    match host.split_once('%') {
        None => host.parse().ok(),
        Some((ip, zone)) => {
            let is_zone = |c: char| c.is_ascii_graphic() && !matches!(c, '[' | ']' | '%' | '/');
            let is_usable = !zone.is_empty() && zone.chars().all(is_zone);
            ip.parse().ok().filter(|_| is_usable).map(IpAddr::V6)
        }
    }
}

/// Whether a host, which is a name or an IP address, is this machine by definition: `localhost`, a name below
/// it, or a loopback address, also in the IPv6 form of IPv4 (RFC 4291 §2.5.5.2).
pub fn is_this_machine(host: &str) -> bool {
    is_localhost(host) || ip_of(host).is_some_and(|ip| ip.to_canonical().is_loopback())
}

/// RFC 6761 §6.3: `localhost` and the names below it, in any case, with a trailing dot or without one.
fn is_localhost(host: &str) -> bool {
    let relative = host.strip_suffix('.').unwrap_or(host);
    let label = relative.rsplit('.').next().unwrap_or_default();
    label.eq_ignore_ascii_case("localhost") && !relative.split('.').any(str::is_empty)
}

/// The addresses of a host, which is a name or an IP address, perhaps with a zone. The first one is the
/// system's choice; the others alternate between the families (RFC 8305 §4). There is at least one.
///
/// # Errors
/// The system knows no address.
pub async fn look_up(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    let relative = host.strip_suffix('.').unwrap_or(host);
    // RFC 6761 §6.3: these names always mean this machine, even if no resolver knows them, or one knows better.
    if is_localhost(host) {
        return Ok(vec![(Ipv4Addr::LOCALHOST, port).into(), (Ipv6Addr::LOCALHOST, port).into()]);
    }
    let found = match lookup_host((host, port)).await {
        // The system's hosts file has no trailing dots, which keep resolvers from adding a domain.
        Err(_) if relative != host => lookup_host((relative, port)).await?.take(MAX_ADDRESSES).collect(),
        found => found?.take(MAX_ADDRESSES).collect(),
    };
    let found = alternate(found);
    if found.is_empty() {
        Err(io::Error::new(io::ErrorKind::NotFound, "its name has no address"))
    } else {
        Ok(found)
    }
}

/// The addresses in their order, but for the families, which take turns.
fn alternate(found: Vec<SocketAddr>) -> Vec<SocketAddr> {
    let begins_with_v4 = found.first().is_some_and(SocketAddr::is_ipv4);
    let (first, second): (Vec<_>, Vec<_>) =
        found.into_iter().partition(|address| address.is_ipv4() == begins_with_v4);
    let mut second = second.into_iter();
    let mut mixed: Vec<_> = first.into_iter().flat_map(|one| [Some(one), second.next()]).flatten().collect();
    mixed.extend(second);
    mixed
}

/// Connects to the first of these addresses that answers. An attempt that fails, or has no answer for 250 ms,
/// lets the next one begin (RFC 8305 §5). The caller limits the whole time.
///
/// # Errors
/// The error of an address that refuses the connection, else the error of the first attempt.
pub async fn connect(addresses: &[SocketAddr]) -> io::Result<TcpStream> {
    connect_by(addresses, TcpStream::connect::<SocketAddr>).await
}

async fn connect_by<T, F>(addresses: &[SocketAddr], attempt: impl Fn(SocketAddr) -> F) -> io::Result<T>
where
    F: Future<Output = io::Result<T>>,
{
    let weigh = |error: &io::Error| match error.kind() {
        // A refusal says more than the lack of a route.
        io::ErrorKind::ConnectionRefused => Weight::Refused,
        _ => Weight::Unreachable,
    };
    // The system reports an answer only as a connection.
    let won = race(addresses, attempt, ATTEMPT_DELAY, || 0, weigh).await;
    won.map_err(|failure| failure.unwrap_or_else(|| io::ErrorKind::NotFound.into()))
}

/// How much a failed attempt says about the server: the heaviest failure is the failure of the race.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Weight {
    /// Nothing was sent, or it reached no machine.
    Unreachable,
    /// No program receives there.
    Refused,
    /// No answer came.
    Silent,
    /// A server has answered, so no further attempt begins.
    Answered,
}

/// Tries addresses until an attempt succeeds, and drops the other attempts. An attempt that fails, or brings
/// no answer for `step`, lets the next one begin beside it (RFC 8305 §5). `heard` counts the answers, of
/// whatever size, to all attempts so far.
///
/// # Errors
/// The heaviest failure of all attempts, the first one of several; `None` without addresses.
pub(crate) async fn race<T, E, F>(
    addresses: &[SocketAddr],
    attempt: impl Fn(SocketAddr) -> F,
    step: Duration,
    heard: impl Fn() -> u64,
    weigh: impl Fn(&E) -> Weight,
) -> Result<T, Option<E>>
where
    F: Future<Output = Result<T, E>>,
{
    let mut attempts = vec![];
    let mut rest = addresses.iter();
    let mut failure: Option<(Weight, E)> = None;
    loop {
        if matches!(failure, Some((Weight::Answered, _))) {
            rest = [].iter();
        }
        match rest.next() {
            Some(address) => attempts.push(Box::pin(attempt(*address))),
            None if attempts.is_empty() => return Err(failure.map(|(_, error)| error)),
            None => {}
        }
        let is_last = rest.as_slice().is_empty();
        let silence = async {
            let mut before = heard();
            loop {
                sleep(step).await;
                match heard() {
                    now if now == before => return,
                    now => before = now,
                }
            }
        };
        tokio::select! {
            ended = first_end(&mut attempts) => match ended {
                Ok(won) => return Ok(won),
                Err(error) => {
                    let weight = weigh(&error);
                    if failure.as_ref().is_none_or(|(heaviest, _)| weight > *heaviest) {
                        failure = Some((weight, error));
                    }
                }
            },
            () = silence, if !is_last => {}
        }
    }
}

/// Waits until the first of these attempts ends, and takes it out.
async fn first_end<F: Future>(attempts: &mut Vec<Pin<Box<F>>>) -> F::Output {
    poll_fn(|cx| {
        for at in 0..attempts.len() {
            if let Some(Poll::Ready(ended)) = attempts.get_mut(at).map(|attempt| attempt.as_mut().poll(cx)) {
                drop(attempts.remove(at));
                return Poll::Ready(ended);
            }
        }
        Poll::Pending
    })
    .await
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use tokio::time::Instant;

    use super::*;

    fn addresses<const N: usize>(texts: [&str; N]) -> [SocketAddr; N] {
        texts.map(|text| text.parse().unwrap())
    }

    #[test]
    fn reads_addresses_with_zones() {
        for text in ["192.0.2.1:1", "[2001:db8::1]:1", "[fe80::1%7]:1"] {
            assert_eq!(parse(text).map(|address| address.to_string()), Ok(text.to_owned()));
        }
        assert_eq!(parse("[fe80::1%lo]:1"), Ok("[fe80::1%1]:1".parse().unwrap()));
        assert!(parse("[fe80::1%no-such0]:1").is_err_and(|why| why.contains("\"no-such0\"")));
        for wrong in ["fe80::1%lo", "[fe80::1%lo]", "[fe80::1%lo]:x", "[192.0.2.1%lo]:1", "example.org:1"] {
            assert!(parse(wrong).is_err_and(|why| why.contains("not an IP address")), "{wrong}");
        }
    }

    #[test]
    fn splits_hosts_from_ports() {
        assert_eq!(split("example.org.:443").unwrap(), ("example.org.", 443));
        assert_eq!(split("[fe80::1%eth0]:443").unwrap(), ("fe80::1%eth0", 443));
        assert!(split("example.org").is_err() && split("example.org:port").is_err());
    }

    #[test]
    fn knows_this_machine_by_every_spelling() {
        for host in [
            "localhost",
            "localhost.",
            "LOCALHOST",
            "a.localhost",
            "127.9.9.9",
            "::1",
            "::ffff:127.0.0.1",
            "::1%lo",
        ] {
            assert!(is_this_machine(host), "{host}");
        }
        for host in [
            "localhost.example",
            "alocalhost",
            ".localhost",
            "localhost..",
            "192.0.2.1",
            "fe80::1%lo",
            "::1%",
            "",
        ] {
            assert!(!is_this_machine(host), "{host}");
        }
        assert_eq!(ip_of("fe80::1%eth0"), Some("fe80::1".parse().unwrap()));
        for name in ["127.0.0.1%lo", "fe80::1%", "fe80::1%a b", "fe80::1%a]", "example.org", "%lo"] {
            assert_eq!(ip_of(name), None, "{name}");
        }
    }

    #[tokio::test]
    async fn finds_this_machine_by_every_spelling() {
        for host in ["localhost", "localhost.", "LOCALHOST.", "a.localhost"] {
            assert_eq!(look_up(host, 1).await.unwrap(), addresses(["127.0.0.1:1", "[::1]:1"]));
        }
        assert_eq!(look_up("fe80::1%lo", 1).await.unwrap(), addresses(["[fe80::1%1]:1"]));
    }

    #[test]
    fn families_take_turns() {
        let found = addresses(["[::1]:1", "[::2]:1", "[::3]:1", "192.0.2.1:1"]);
        let mixed = addresses(["[::1]:1", "192.0.2.1:1", "[::2]:1", "[::3]:1"]);
        assert_eq!(alternate(found.to_vec()), mixed);
        let found = addresses(["192.0.2.1:1", "[::1]:1", "[::2]:1"]);
        assert_eq!(alternate(found.to_vec()), found);
    }

    /// An attempt in virtual time. The port says when it ends, in milliseconds, and a last digit of 1 that it
    /// succeeds; 0 means never.
    async fn attempt(address: SocketAddr) -> io::Result<u16> {
        match address.port() {
            0 => pending().await,
            port => {
                sleep(Duration::from_millis(port.into())).await;
                if port % 10 == 1 { Ok(port) } else { Err(io::ErrorKind::ConnectionRefused.into()) }
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_dead_address_delays_a_good_one_by_one_step() {
        // The ports, the one that wins, and when.
        for (ports, winner, at) in [
            (&[31][..], Ok(31), 31),
            (&[0, 31], Ok(31), 281),
            (&[0, 0, 31], Ok(31), 531),
            // A refusal does not wait for the step.
            (&[50, 31], Ok(31), 81),
            (&[0, 50, 31], Ok(31), 331),
            // The slow first one is still the best.
            (&[301, 101], Ok(301), 301),
            (&[50, 60], Err(io::ErrorKind::ConnectionRefused), 110),
            (&[], Err(io::ErrorKind::NotFound), 0),
        ] {
            let addresses: Vec<_> = ports.iter().map(|port| (Ipv4Addr::LOCALHOST, *port).into()).collect();
            let begin = Instant::now();
            let won = connect_by(&addresses, attempt).await.map_err(|error| error.kind());
            assert_eq!((won, begin.elapsed().as_millis()), (winner, at), "{ports:?}");
        }
    }
    #[tokio::test(start_paused = true)]
    async fn a_server_that_answers_keeps_the_next_attempt_waiting() {
        let [slow, good] = addresses(["127.0.0.1:901", "127.0.0.1:31"]);
        // Answers come until this time, in milliseconds, and the good address is tried at the end of a step
        // without any.
        for (until, winner, at) in [(0, 31, 131), (150, 31, 331), (850, 901, 901)] {
            let begin = Instant::now();
            let heard = || begin.elapsed().as_millis().min(until) as u64;
            let step = Duration::from_millis(100);
            let won = race(&[slow, good], attempt, step, heard, |_: &io::Error| Weight::Silent).await;
            assert_eq!((won.unwrap(), begin.elapsed().as_millis()), (winner, at), "{until}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn no_attempt_follows_the_failure_of_a_server_that_answers() {
        // The weight of the first failure, and the result of both attempts: the second one is good.
        for (weight, won) in
            [(Weight::Answered, None), (Weight::Silent, Some(31)), (Weight::Refused, Some(31))]
        {
            let found = addresses(["127.0.0.1:50", "127.0.0.1:31"]);
            let result = race(&found, attempt, ATTEMPT_DELAY, || 0, |_: &io::Error| weight).await;
            assert_eq!(result.ok(), won, "{weight:?}");
        }
        // An attempt in progress still wins.
        let found = addresses(["127.0.0.1:501", "127.0.0.1:50", "127.0.0.1:31"]);
        let result = race(&found, attempt, ATTEMPT_DELAY, || 0, |_: &io::Error| Weight::Answered).await;
        assert_eq!(result.ok(), Some(501));
    }
}
