//! OpenSSL's spelling of options: `-psk_identity` for `--psk-identity`.

use std::ffi::OsString;

use clap::Command;

/// Rewrites the options of the subcommands named in `subcommands` to ours. One that they do not have becomes a long
/// one, too: what is said of it then names it whole.
pub(crate) fn from_openssl(
    args: impl IntoIterator<Item = OsString>,
    cli: &Command,
    subcommands: &[&str],
) -> Vec<OsString> {
    let mut args: Vec<_> = args.into_iter().collect();
    let named = args.get(1).and_then(|name| name.to_str()).filter(|name| subcommands.contains(name));
    let Some(command) = named.and_then(|name| cli.find_subcommand(name)) else { return args };
    for arg in args.iter_mut().skip(2).take_while(|arg| *arg != "--") {
        if let Some(ours) = arg.to_str().and_then(|arg| long_option(arg, command)) {
            *arg = ours.into();
        }
    }
    args
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

/// The version that an option of OpenSSL's stands for, where it is one that nobody should speak any more.
pub(crate) fn retired_version(option: &str) -> Option<&'static str> {
    match option.trim_start_matches('-').replace('_', "-").as_str() {
        "ssl3" => Some("SSL 3.0"),
        "tls1" => Some("TLS 1.0"),
        "tls1-1" => Some("TLS 1.1"),
        "dtls1" => Some("DTLS 1.0"),
        _ => None,
    }
}

/// `text`, which names options as this program has them, with those of `args` as they were typed.
pub(crate) fn as_typed(mut text: String, args: impl IntoIterator<Item = OsString>) -> String {
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
    fn options_are_told_as_typed() {
        let told =
            |text: &str| as_typed(text.into(), ["dunlin", "client", "-psk_ke", "-x=1"].map(OsString::from));
        assert_eq!(told("'--psk-ke' and '--psk-ke <X>'"), "'-psk_ke' and '-psk_ke <X>'");
        assert_eq!(told("'--psk-kex' '-x'"), "'--psk-kex' '-x'");
    }

    #[test]
    fn options_are_rewritten_where_they_exist() {
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
        assert_eq!(rewritten(&["dunlin", "client", "--", "-CAfile"])[3], "-CAfile");
        assert_eq!(rewritten(&["dunlin", "pki", "-CAfile"])[2], "-CAfile");
        assert_eq!(rewritten(&["dunlin"]), ["dunlin"]);
    }
}
