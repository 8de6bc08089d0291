//! OpenSSL's spelling of options: `-psk_identity` for `--psk-identity`.

use std::ffi::OsString;

use clap::Command;
use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Rewrites options of the subcommands named in `subcommands` to the spelling of this program. Unknown
/// options become long ones, too, so that clap's error names the whole option.
pub fn from_openssl(
    args: impl IntoIterator<Item = OsString>,
    cli: &Command,
    subcommands: &[&str],
) -> Vec<OsString> {
    let mut args: Vec<_> = args.into_iter().collect();
    let named = args.get(1).and_then(|name| name.to_str()).filter(|name| subcommands.contains(name));
    let Some(command) = named.and_then(|name| cli.find_subcommand(name)) else { return args };
    let end = args.iter().position(|arg| arg == "--").unwrap_or(args.len());
    let mut rewritten: Vec<OsString> = args.drain(..end.min(2)).collect();
    for arg in args.drain(..end - rewritten.len()) {
        match arg.to_str().and_then(dtls_version) {
            Some(version) => {
                // -dtls1_2 -dtls1_3 enables both.
                if !rewritten.iter().any(|before| before == "--udp") {
                    rewritten.push("--udp".into());
                }
                rewritten.extend(version.map(OsString::from));
            }
            None => {
                let ours = arg.to_str().and_then(|arg| long_option(arg, command));
                rewritten.push(ours.map_or(arg, OsString::from));
            }
        }
    }
    rewritten.append(&mut args);
    rewritten
}

/// Returns the option of TLS for one of DTLS, which also means --udp; `Some(None)` for any version.
fn dtls_version(arg: &str) -> Option<Option<&'static str>> {
    match arg.trim_start_matches('-').replace('_', "-").as_str() {
        _ if !arg.starts_with('-') => None,
        "dtls" | "udp" => Some(None),
        "dtls1-2" => Some(Some("--tls1-2")),
        "dtls1-3" => Some(Some("--tls1-3")),
        _ => None,
    }
}

fn long_option(arg: &str, command: &Command) -> Option<String> {
    let single = !arg.starts_with("--");
    let word = arg.strip_prefix("--").or_else(|| arg.strip_prefix('-'))?;
    let (name, value) = word.split_once('=').map_or((word, None), |(name, value)| (name, Some(value)));
    // A single letter is a short option.
    if name.len() < 2 {
        return None;
    }
    let ours = name.replace('_', "-");
    let known = command.get_arguments().any(|a| {
        a.get_long() == Some(&ours) || a.get_all_aliases().unwrap_or_default().contains(&ours.as_str())
    });
    let value = value.map_or_else(String::new, |value| format!("={value}"));
    match (known, single) {
        (true, _) => Some(format!("--{ours}{value}")),
        (false, true) => Some(format!("--{word}")),
        (false, false) => None,
    }
}

/// Returns the version that an option of OpenSSL stands for, if the version is obsolete and unsupported.
fn retired_version(option: &str) -> Option<&'static str> {
    match option.trim_start_matches('-').replace('_', "-").as_str() {
        "ssl3" => Some("SSL 3.0"),
        "tls1" => Some("TLS 1.0"),
        "tls1-1" => Some("TLS 1.1"),
        "dtls1" => Some("DTLS 1.0"),
        _ => None,
    }
}

/// Explains why the argument after `before` is refused, and what to do instead, if s_client or s_server would
/// accept it.
pub fn not_taken(argument: &str, before: Option<&str>) -> Option<(String, &'static str)> {
    let is_verify = |option: &str| matches!(option.trim_start_matches('-'), "verify" | "Verify");
    if let Some(version) = retired_version(argument) {
        let why = format!("{version} is not supported: it is insecure (RFC 8996, RFC 7568)");
        return Some((why, "use --tls1-2 or --tls1-3, on the peer too"));
    }
    if is_verify(argument) {
        // Only the client lacks this option.
        let why = format!("{argument} is not needed: a server is always verified");
        return Some((
            why,
            "leave it out; --CAfile names the trusted authorities, --verify-depth the maximum depth of a chain",
        ));
    }
    let option = before.filter(|option| is_verify(option) && argument.parse::<u32>().is_ok())?;
    let why = format!("{option} takes no depth");
    Some((why, "leave the number out, or give it with --verify-depth"))
}

/// Explains which of `args` needs the argument that `error` reports as missing. clap names only the missing
/// one.
pub fn unmet(error: &clap::Error, args: &[OsString], cli: &Command) -> Option<(String, String)> {
    let missing = missing(error).into_iter().next()?;
    let lacks = |args: &[OsString]| {
        let parsed = cli.clone().try_get_matches_from(args);
        parsed.is_err_and(|error| self::missing(&error).contains(&missing))
    };
    let is_option = |arg: &OsString| arg.to_str().is_some_and(|arg| arg.starts_with("--"));
    let (command, options) = args.split_at(args.iter().position(is_option)?);
    if lacks(command) {
        return None;
    }
    // An option and its values fail alone, too, if the option needs the missing argument.
    let mut each = options.chunk_by(|_, next| !is_option(next));
    let needing = each.find(|option| lacks(&[command, option].concat()))?;
    let name = needing.first()?.to_str()?.split('=').next()?;
    Some((format!("{name} needs {missing}"), format!("add {missing}, or leave {name} out")))
}

/// The arguments that `error` reports as missing.
fn missing(error: &clap::Error) -> Vec<String> {
    match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::Strings(missing)) if error.kind() == ErrorKind::MissingRequiredArgument => {
            missing.clone()
        }
        _ => vec![],
    }
}

/// Replaces the option names in `text` by their spelling in `args`.
pub fn as_typed(mut text: String, args: impl IntoIterator<Item = OsString>) -> String {
    for arg in args.into_iter().skip(2).take_while(|arg| arg != "--") {
        let typed = arg.to_str().filter(|arg| arg.starts_with('-')).and_then(|arg| arg.split('=').next());
        let Some(typed) = typed.filter(|typed| typed.trim_start_matches('-').len() > 1) else { continue };
        let name = typed.trim_start_matches('-');
        for ours in [name.to_owned(), name.replace('_', "-")] {
            for end in ["'", " "] {
                text = text.replace(&format!("'--{ours}{end}"), &format!("'{typed}{end}"));
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use clap::Arg;

    use super::*;

    #[test]
    fn errors_name_options_as_typed() {
        let told =
            |text: &str| as_typed(text.into(), ["dunlin", "client", "-psk_ke", "-x=1"].map(OsString::from));
        assert_eq!(told("'--psk-ke' and '--psk-ke <X>'"), "'-psk_ke' and '-psk_ke <X>'");
        assert_eq!(told("'--psk-kex' '-x'"), "'--psk-kex' '-x'");
    }

    #[test]
    fn explains_options_that_only_openssl_has() {
        let why = |argument, before| not_taken(argument, before).map(|(why, _)| why).unwrap_or_default();
        assert!(why("3", Some("-Verify")).starts_with("-Verify takes no depth"));
        assert!(why("-verify", Some("client")).starts_with("-verify is not needed"));
        assert!(why("--ssl3", Some("3")).starts_with("SSL 3.0 is not supported"));
        for (argument, before) in [("3", Some("--port")), ("x", Some("-verify")), ("3", None), ("-x", None)] {
            assert!(not_taken(argument, before).is_none(), "{argument}");
        }
    }

    #[test]
    fn names_the_option_that_needs_another_one() {
        let client = Command::new("client")
            .arg(Arg::new("host"))
            .arg(Arg::new("mtu").long("mtu").requires("udp"))
            .arg(Arg::new("cid").long("cid").num_args(0..=1).requires("udp"))
            .arg(Arg::new("x").long("x"))
            .arg(Arg::new("udp").long("udp").num_args(0));
        let ca =
            Command::new("ca").arg(Arg::new("name").long("name").required(true)).arg(Arg::new("o").long("o"));
        let cli = Command::new("dunlin").subcommand(client).subcommand(ca);
        let told = |args: &str| {
            let args: Vec<OsString> = args.split(' ').map(OsString::from).collect();
            unmet(&cli.clone().try_get_matches_from(&args).unwrap_err(), &args, &cli).map(|(why, _)| why)
        };
        assert_eq!(told("dunlin client h --x 1 --mtu 256").as_deref(), Some("--mtu needs --udp"));
        assert_eq!(told("dunlin client --mtu=256 h").as_deref(), Some("--mtu needs --udp"));
        assert_eq!(told("dunlin client --x 1 --cid").as_deref(), Some("--cid needs --udp"));
        assert_eq!(told("dunlin ca --o 1"), None);
        assert_eq!(told("dunlin client --y"), None);
    }

    #[test]
    fn rewrites_known_options() {
        let client = Command::new("client")
            .arg(Arg::new("a").long("sess-out").visible_alias("sess"))
            .arg(Arg::new("b").long("CAfile"));
        let cli = Command::new("dunlin").subcommand(client).subcommand(Command::new("pki"));
        let rewritten = |args: &[&str]| {
            let args = args.iter().map(OsString::from);
            from_openssl(args, &cli, &["client"])
                .into_iter()
                .map(|a| a.into_string().unwrap())
                .collect::<Vec<_>>()
        };
        assert_eq!(
            rewritten(&[
                "dunlin",
                "client",
                "-CAfile",
                "-sess_out",
                "--sess_out=a_b",
                "-sess",
                "-x",
                "-no_ne"
            ]),
            ["dunlin", "client", "--CAfile", "--sess-out", "--sess-out=a_b", "--sess", "-x", "--no_ne"]
        );
        assert_eq!(
            rewritten(&["dunlin", "client", "-dtls1_2", "--dtls1-3", "-x"])[2..],
            ["--udp", "--tls1-2", "--tls1-3", "-x"]
        );
        assert_eq!(
            rewritten(&["dunlin", "client", "-dtls", "dtls", "--", "-dtls"])[2..],
            ["--udp", "dtls", "--", "-dtls"]
        );
        assert_eq!(rewritten(&["dunlin", "client", "--", "-CAfile"])[3], "-CAfile");
        assert_eq!(rewritten(&["dunlin", "pki", "-CAfile"])[2], "-CAfile");
        assert_eq!(rewritten(&["dunlin"]), ["dunlin"]);
    }
}
