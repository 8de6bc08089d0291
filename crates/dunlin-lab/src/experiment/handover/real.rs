//! Client and server on real sockets in network namespaces: Dunlin's, and the rivals'.

use std::ffi::OsString;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::Duration;

use dunlin_sim::Host;

use super::super::foreign::{Foreign, Library};
use super::super::keys::{Files, Keys, pem_file};
use super::case::{Case, Figures, Scheme, Talk};
use super::client::Client;
use super::configs::configs;
use super::ground::{DEVICES, Place, SERVER};
use super::server::{POOL, Server};
use super::sockets::{Sockets, Watch};
use crate::Error;
use crate::net::{Ground, Process};

const PORT: u16 = 5684;
const PEER: SocketAddr = SocketAddr::new(IpAddr::V4(SERVER), PORT);

/// A stack on real sockets.
pub(super) enum Stack {
    Dunlin,
    Rival(Rival),
}

impl Stack {
    pub(super) const fn name(&self) -> &'static str {
        match self {
            Self::Dunlin => "dunlin",
            Self::Rival(rival) => rival.program.name,
        }
    }

    /// Whether it has the scheme.
    pub(super) fn has(&self, scheme: Scheme) -> bool {
        match self {
            Self::Dunlin => true,
            Self::Rival(rival) => rival.schemes.contains(&scheme),
        }
    }

    /// Runs a case. `seed` determines the losses.
    pub(super) fn run(
        &self,
        ground: &Ground,
        case: &Case,
        keys: &Keys,
        talk: Talk,
        seed: u64,
    ) -> Result<Figures, Error> {
        let place = Place::new(ground, &case.path, case.scheme.interfaces(), seed)?;
        let (ended, end) = channel();
        let (figures, handovers) = thread::scope(|scope| {
            let talking = scope.spawn(|| {
                // The end of the sender tells the end of the talk, also if it fails.
                let _ended: Sender<()> = ended;
                match self {
                    Self::Dunlin => dunlin(&place, case, keys, talk.messages),
                    Self::Rival(rival) => rival.talk(ground, &place, case, keys, talk.messages),
                }
            });
            let handovers = place.hand_over(case.path.downtime, talk, &end);
            (talking.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)), handovers)
        });
        let (packets, bytes) = place.carried();
        let (handovers, downtime) = handovers?;
        Ok(Figures { handovers, downtime, packets, bytes, ..figures? })
    }
}

/// Runs Dunlin on both sides.
fn dunlin(place: &Place, case: &Case, keys: &Keys, messages: u32) -> Result<Figures, Error> {
    let configs = configs(keys, case.scheme)?;
    let has_ended = AtomicBool::new(false);
    // The server listens before the client begins.
    let mut listening = Sockets::default();
    let mut ports = POOL.map(|port| SocketAddr::new(SERVER.into(), port)).into_iter().chain([PEER]);
    place.server.run(|| ports.try_for_each(|at| listening.open(at).map(|_| ())))??;
    thread::scope(|scope| {
        let serving = scope.spawn(|| {
            place.server.run(|| {
                let mut server = Server::new(configs.1, case.server, PORT, POOL.to_vec());
                server.set_addresses(dunlin_tokio::now(), &[Some(SERVER.into())]);
                listening.run(&mut server, None, |_| has_ended.load(Ordering::Relaxed))?;
                Ok::<_, Error>(server)
            })
        });
        let asked = place.client.run(|| {
            let devices = DEVICES.get(..case.scheme.interfaces()).unwrap_or_default();
            let watch = Watch::new(devices, PEER)?;
            let mut client = Client::new(configs.0, case.scheme, PEER, messages);
            let mut sockets = Sockets::default();
            sockets.look(&watch, &mut client);
            sockets.run(&mut client, Some(&watch), |client| {
                let now = dunlin_tokio::now();
                let is_done = if messages == 0 { client.is_at_rest(now) } else { client.is_done() };
                is_done || client.is_hopeless(now)
            })?;
            Ok::<_, Error>(client.figures().clone())
        });
        has_ended.store(true, Ordering::Relaxed);
        let served = serving.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        let asked = asked??;
        let server = served??;
        Ok(Figures { missing: server.missing(asked.acknowledged), ..asked })
    })
}

const OPENSSL: Library = Library::openssl(&[include_str!("talk.c"), include_str!("openssl.c")], false);
const MBEDTLS: Library = Library::mbedtls(&[include_str!("talk.c"), include_str!("mbedtls.c")]);

/// Another library, with the schemes that its program has.
pub(super) struct Rival {
    program: Foreign,
    schemes: &'static [Scheme],
}

impl Rival {
    /// OpenSSL's DTLS 1.2, without connection IDs.
    pub(super) fn openssl() -> Result<Self, Error> {
        let schemes = &[Scheme::Standard, Scheme::SessionId, Scheme::Ticket];
        Ok(Self { program: OPENSSL.compile()?, schemes })
    }

    /// Mbed TLS's DTLS 1.2 with connection IDs. `options` tell the compiler where the library is.
    ///
    /// # Errors
    /// The compiler or the library is missing, or the library is too old.
    pub(super) fn mbedtls(options: &[String]) -> Result<Self, Error> {
        Ok(Self { program: MBEDTLS.compile_with(options)?, schemes: &[Scheme::Cid12] })
    }

    fn talk(
        &self,
        ground: &Ground,
        place: &Place,
        case: &Case,
        keys: &Keys,
        messages: u32,
    ) -> Result<Figures, Error> {
        let program = &self.program;
        let root = pem_file(&keys.root)?;
        let [client, server] = [Files::pem(&keys.client)?, Files::pem(&keys.server)?];
        let words = |role: &str, own: &Files| -> Vec<OsString> {
            let words = [role, case.server.name(), case.scheme.name()].map(OsString::from);
            words.into_iter().chain([root.path().into()]).chain(own.paths()).collect()
        };
        let (_serving, port): (Process<'_>, _) =
            program.serve(ground, &place.server, words("server", &server))?;
        let to = [SERVER.to_string(), port, messages.to_string()].map(OsString::from);
        let arguments = [&words("client", &client)[..], &to].concat();
        let client = ground.spawn(&place.client, &mut program.command(arguments))?;
        let printed = program.finished(client)?;
        let numbers: Vec<f64> = printed.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        let &[wall_clock, first, acknowledged, resent, handshakes, resumed] = &numbers[..] else {
            return Err(program.failed("it prints something else"));
        };
        let time = |ms: f64| Some(Duration::from_secs_f64(ms / 1e3));
        let acknowledged = acknowledged as u32;
        Ok(Figures {
            wall_clock: time(wall_clock).filter(|_| acknowledged == messages),
            first_handshake: time(first),
            acknowledged,
            resent: resent as u32,
            handshakes: handshakes as u32,
            resumed: resumed as u32,
            ..Figures::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use dunlin_sim::NatKind;

    use super::super::case::{HANDSHAKE, Path, ServerKind};
    use super::super::configs::keys;
    use super::super::virtual_time;
    use super::*;

    /// Returns nothing without privileges.
    fn ground() -> Option<Ground> {
        match Ground::new() {
            Err(error) if error.why().contains("needs root") && !nix::unistd::geteuid().is_root() => {
                eprintln!("not tested here: {error}");
                None
            }
            ground => Some(ground.unwrap()),
        }
    }

    /// A client on real devices whose address changes. Returns nothing without privileges.
    fn run(stack: &Stack, scheme: Scheme, nat: Option<NatKind>, talk: Talk) -> Option<Figures> {
        let ground = ground()?;
        let downtime = Some(Duration::from_millis(5));
        let path = Path { delay: Duration::from_millis(5), loss_percent: 0, nat, downtime };
        let case = Case { scheme, server: ServerKind::Listening, path };
        let figures = stack.run(&ground, &case, &keys().unwrap(), talk, 1).unwrap();
        assert_eq!((figures.acknowledged, figures.missing), (talk.messages, 0), "{}", case.name());
        assert!(figures.handovers > 0 && figures.packets > 2 * u64::from(talk.messages), "{figures:?}");
        Some(figures)
    }

    #[test]
    fn connection_ids_survive_changes_of_the_address_on_real_devices() {
        let talk = Talk { messages: 12, period: Duration::from_millis(300) };
        for (scheme, nat) in [(Scheme::Cid12, None), (Scheme::Cid13, Some(NatKind::PortRestricted))] {
            if let Some(figures) = run(&Stack::Dunlin, scheme, nat, talk) {
                assert_eq!(figures.handshakes, 1);
            }
        }
    }

    /// The same engine sends the same bytes on both ways; only signatures vary, by two bytes each.
    #[test]
    fn the_first_handshake_takes_the_same_bytes_really_and_virtually() {
        let Some(ground) = ground() else { return };
        let keys = keys().unwrap();
        let stack = Stack::Dunlin;
        let path = Path { delay: Duration::from_millis(5), loss_percent: 0, nat: None, downtime: None };
        let agree = |scheme: Scheme| {
            let case = Case { scheme, server: ServerKind::Listening, path };
            let real = stack.run(&ground, &case, &keys, HANDSHAKE, 1).unwrap();
            let made = virtual_time::handshake(&case, &keys, 1).unwrap();
            assert_eq!((real.handshakes, real.packets), (1, made.packets), "{}", scheme.name());
            let ratio = real.bytes as f64 / made.bytes as f64;
            assert!((0.98..=1.02).contains(&ratio), "{}: {} and {}", scheme.name(), real.bytes, made.bytes);
        };
        thread::scope(|scope| {
            for scheme in Scheme::ALL.into_iter().filter(|scheme| scheme.interfaces() == 1) {
                scope.spawn(move || agree(scheme));
            }
        });
    }

    #[test]
    fn openssl_connects_again_after_a_change_of_its_address() {
        // The pauses alone take longer than the period. The timeout leaves time before the next change.
        let talk = Talk { messages: 16, period: Duration::from_millis(1500) };
        for (scheme, resumes) in [(Scheme::Standard, false), (Scheme::Ticket, true)] {
            let openssl = Stack::Rival(Rival::openssl().unwrap());
            if let Some(figures) = run(&openssl, scheme, None, talk) {
                assert!(figures.handshakes > 1);
                assert_eq!(figures.resumed, if resumes { figures.handshakes - 1 } else { 0 });
            }
        }
    }

    /// Compiles the program of Mbed TLS, after the library whose source code the other tests use, too.
    fn mbedtls() -> Rival {
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
        let out = format!("{root}/target/peers/mbedtls");
        let mut build = Command::new("make");
        build.args(["-s", "-j2", "library", &format!("OUT={out}"), "-C"]);
        // The tests may run below another make.
        let output =
            build.arg(format!("{root}/tests/peers/mbedtls")).env_remove("MAKEFLAGS").output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Rival::mbedtls(&[format!("-I{out}/include"), format!("-L{out}")]).unwrap()
    }

    #[test]
    fn connection_ids_of_mbedtls_survive_changes_of_the_address() {
        let talk = Talk { messages: 12, period: Duration::from_millis(300) };
        let mbedtls = Stack::Rival(mbedtls());
        for nat in [None, Some(NatKind::PortRestricted)] {
            if let Some(figures) = run(&mbedtls, Scheme::Cid12, nat, talk) {
                assert_eq!((figures.handshakes, figures.resumed), (1, 0));
            }
        }
    }
}
