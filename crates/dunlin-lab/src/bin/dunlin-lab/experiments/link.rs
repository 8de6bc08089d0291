//! `dunlin-lab link`: a slow, lossy or interrupted line between two network namespaces.

use std::io::{self, Write};
use std::net::Ipv4Addr;
use std::time::Duration;

use clap::Args as ClapArgs;
use dunlin_command::error::Error;
use dunlin_lab::link::{Counts, Cut, Line, Link};
use dunlin_lab::net::{End, Namespace};
use dunlin_lab::signals::Ending;
use serde_json::json;

/// Join two network namespaces by a line with delay, jitter, loss, a rate and cuts, until Ctrl-C.
///
/// The command makes a TUN device in each namespace and carries packets between them. It works on kernels
/// without netem, and is exact to a fraction of a millisecond, because it runs with real-time priority if
/// permitted. The values apply to each direction. The devices vanish when the command ends, even if it is
/// killed.
#[derive(ClapArgs)]
#[command(after_help = "\
Examples:
  ip netns add client; ip netns add server
  dunlin-lab link --a client --address-a 10.78.0.1/24 --b server --address-b 10.78.0.2/24 --delay-ms 30
  ip netns exec client ping 10.78.0.2

  dunlin-lab link --a /proc/4711/ns/net --b server --rate-kbit-per-s 250 --mtu 127
  dunlin-lab link --a client --b server --up-ms 10000 --down-ms 650      cut for 650 ms every 10.65 s

The command prints \"ready\" on stderr as soon as packets pass, and the packet counts when it ends. It needs root or
CAP_SYS_ADMIN and CAP_NET_ADMIN, and /dev/net/tun.")]
pub(crate) struct Args {
    /// The first namespace: its name in `ip netns list`, or a path such as /proc/PID/ns/net.
    #[arg(long, value_name = "NAMESPACE")]
    a: String,
    /// The second namespace.
    #[arg(long, value_name = "NAMESPACE")]
    b: String,
    /// The name of the device in the namespace `a`.
    #[arg(long, value_name = "NAME", default_value = "line0")]
    device_a: String,
    /// The name of the device in the namespace `b`.
    #[arg(long, value_name = "NAME", default_value = "line0")]
    device_b: String,
    /// The address of the device in `a`; without one, set it with `ip address add`.
    #[arg(long, value_name = "IPV4/PREFIX", value_parser = address)]
    address_a: Option<(Ipv4Addr, u8)>,
    /// The address of the device in `b`.
    #[arg(long, value_name = "IPV4/PREFIX", value_parser = address)]
    address_b: Option<(Ipv4Addr, u8)>,
    /// The maximum size of an IP packet, in bytes.
    #[arg(long, value_name = "BYTES", default_value_t = 1500, value_parser = clap::value_parser!(u16).range(68..))]
    mtu: u16,
    /// The delay of a packet in one direction.
    #[arg(long, value_name = "MS", default_value = "0", value_parser = milliseconds)]
    delay_ms: Duration,
    /// The jitter: each delay is uniformly random within ± this. Packets may overtake each other.
    #[arg(long, value_name = "MS", default_value = "0", value_parser = milliseconds)]
    jitter_ms: Duration,
    /// The percentage of lost packets.
    #[arg(long, value_name = "PERCENT", default_value_t = 0.0)]
    loss_percent: f64,
    /// The rate of IP packets in kilobits a second; without it, as fast as the machine can.
    #[arg(long, value_name = "KBIT")]
    rate_kbit_per_s: Option<u64>,
    /// The length of the queue at that rate; further packets are dropped.
    #[arg(long, value_name = "PACKETS", default_value_t = Line::default().queue, requires = "rate_kbit_per_s")]
    queue: usize,
    /// Cut the line periodically: the time between two cuts.
    #[arg(long, value_name = "MS", value_parser = milliseconds, requires = "down_ms")]
    up_ms: Option<Duration>,
    /// The duration of a cut, during which all packets are lost.
    #[arg(long, value_name = "MS", value_parser = milliseconds, requires = "up_ms")]
    down_ms: Option<Duration>,
    /// The time of the first cut; by default after the first --up-ms.
    #[arg(long, value_name = "MS", value_parser = milliseconds, requires = "up_ms")]
    phase_ms: Option<Duration>,
    /// The seed of losses and jitter.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Print the packet counts as JSON.
    #[arg(long)]
    json: bool,
}

impl Args {
    fn line(&self) -> Line {
        let cut = self.up_ms.zip(self.down_ms);
        Line {
            delay: self.delay_ms,
            jitter: self.jitter_ms,
            loss_percent: self.loss_percent,
            rate_kbit_per_s: self.rate_kbit_per_s,
            queue: self.queue,
            cut: cut.map(|(up, down)| Cut { up, down, phase: self.phase_ms.unwrap_or(up) }),
        }
    }
}

/// Runs `dunlin-lab link`.
pub(super) fn run(args: &Args, out: &mut dyn Write) -> Result<(), Error> {
    let ending = Ending::watch()?;
    let a = Namespace::open(&args.a)?;
    let b = Namespace::open(&args.b)?;
    let ends = [
        End { namespace: &a, device: &args.device_a, address: args.address_a, mtu: args.mtu },
        End { namespace: &b, device: &args.device_b, address: args.address_b, mtu: args.mtu },
    ];
    let link = Link::start(ends, &args.line(), args.seed)?;
    let priority = if link.is_real_time() {
        ""
    } else {
        ", without real-time priority: delays can be milliseconds longer"
    };
    writeln!(io::stderr(), "ready{priority}")?;
    let counts = link.run_until(ending)?;
    if args.json {
        writeln!(out, "{}", json(&counts))?;
    } else {
        print(&counts, out)?;
    }
    Ok(())
}

fn json(counts: &Counts) -> serde_json::Value {
    json!({
        "forwarded": counts.forwarded,
        "forwarded_bytes": counts.forwarded_bytes,
        "lost": counts.lost,
        "overflowed": counts.overflowed,
        "cut": counts.cut,
        "refused": counts.refused,
        "late_us_mean": microseconds(counts.mean_lateness()),
        "late_us_max": microseconds(counts.latest),
    })
}

fn print(counts: &Counts, out: &mut dyn Write) -> io::Result<()> {
    let Counts { forwarded, forwarded_bytes, lost, overflowed, cut, refused, .. } = counts;
    writeln!(out, "forwarded {forwarded} packets, {forwarded_bytes} bytes")?;
    writeln!(
        out,
        "dropped {lost} by chance, {overflowed} at a full queue, {cut} during cuts, {refused} at a device that was down"
    )?;
    let mean = microseconds(counts.mean_lateness());
    let max = microseconds(counts.latest);
    writeln!(out, "late by {mean:.0} µs on average, {max:.0} µs at most")
}

fn microseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}

fn milliseconds(text: &str) -> Result<Duration, String> {
    let ms: f64 = text.parse().map_err(|_| "not a number of milliseconds".to_owned())?;
    Duration::try_from_secs_f64(ms / 1e3).map_err(|_| "negative or too long".to_owned())
}

fn address(text: &str) -> Result<(Ipv4Addr, u8), String> {
    let parts = text
        .split_once('/')
        .and_then(|(address, prefix)| Some((address.parse().ok()?, prefix.parse().ok()?)));
    parts.filter(|(_, prefix)| *prefix <= 32).ok_or_else(|| "not an address like 10.78.0.1/24".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_milliseconds_with_a_point() {
        assert_eq!(milliseconds("0.25"), Ok(Duration::from_micros(250)));
        for wrong in ["", "5ms", "-1", "inf", "NaN", "1e300"] {
            milliseconds(wrong).unwrap_err();
        }
    }

    #[test]
    fn addresses_have_a_prefix() {
        assert_eq!(address("10.78.0.1/24"), Ok((Ipv4Addr::new(10, 78, 0, 1), 24)));
        for wrong in ["10.78.0.1", "10.78.0.1/33", "10.78.0/24", "fd00::1/64", "/"] {
            address(wrong).unwrap_err();
        }
    }
}
