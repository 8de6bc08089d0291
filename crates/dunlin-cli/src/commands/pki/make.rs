//! The commands that make keys and certificates.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args as ClapArgs, value_parser};
use dunlin_command::error::{Error, printable};
use dunlin_command::files::{self, Access, Existing};
use dunlin_pki::{
    AltName, Authority, CaSpec, Form, KeyPair, KeyType, LeafSpec, Purpose, Subject, Tree, TreeSpec, Validity,
    certificates_to_pem, parse_time,
};
use pki_types::CertificateDer;

/// How many days certificates are valid by default.
const ROOT_DAYS: u32 = 3650;
const INTERMEDIATE_DAYS: u32 = 1825;
const LEAF_DAYS: u32 = 365;
const DEMO_DAYS: u32 = 90;

/// Make a root: a certificate authority with a self-signed certificate.
#[derive(ClapArgs)]
#[command(after_help = "Example:\n  dunlin pki ca --name \"Example root\" --key-type p384 --out pki")]
pub(super) struct Ca {
    #[command(flatten)]
    authority: AuthorityArgs,
    #[command(flatten)]
    key: KeyArg,
    #[command(flatten)]
    times: Times,
    #[command(flatten)]
    output: Output,
}

/// Make a certificate authority under another one.
#[derive(ClapArgs)]
#[command(after_help = "\
Example:
  dunlin pki intermediate --issuer pki/ca.pem --issuer-key pki/ca.key --name \"Example sub-CA\" --out pki")]
pub(super) struct Intermediate {
    #[command(flatten)]
    issuer: Issuer,
    #[command(flatten)]
    authority: AuthorityArgs,
    #[command(flatten)]
    key: KeyArg,
    #[command(flatten)]
    times: Times,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    chain: Chain,
}

/// Make a certificate for a server, a client or both.
#[derive(ClapArgs)]
#[command(after_help = "\
Examples:
  dunlin pki leaf --issuer ca.pem --issuer-key ca.key --server --san gw.example.com --san 192.0.2.1
  dunlin pki leaf --issuer sub.pem --issuer-key sub.key --client --name sensor-7 --lean \\
    --cert sensor-7.pem --key sensor-7.key")]
pub(super) struct Leaf {
    #[command(flatten)]
    issuer: Issuer,
    /// The holder's common name or distinguished name. Give host names as --san.
    #[arg(long = "name", visible_alias = "subject", value_name = "NAME|DN", value_parser = subject)]
    subject: Option<Subject>,
    /// A subject alternative name: DNS:host, IP:address or URI:uri, or the name without a prefix. May be
    /// repeated.
    #[arg(long = "san", value_name = "NAME", value_parser = alt_name)]
    names: Vec<AltName>,
    /// Make a certificate for TLS servers only [default: servers and clients].
    #[arg(long)]
    server: bool,
    /// Make a certificate for TLS clients only [default: servers and clients].
    #[arg(long)]
    client: bool,
    #[command(flatten)]
    lean: Lean,
    #[command(flatten)]
    key: KeyArg,
    #[command(flatten)]
    times: Times,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    chain: Chain,
}

/// Make a raw public key (RFC 7250): a private key and its SubjectPublicKeyInfo.
#[derive(ClapArgs)]
#[command(
    after_help = "Example:\n  dunlin pki raw-key --key-type ed25519 --key device.key --public device.pub"
)]
pub(super) struct RawKey {
    #[command(flatten)]
    key_type: KeyArg,
    /// The directory for raw.key and raw.pub.
    #[arg(long, value_name = "DIR", default_value = ".")]
    out: PathBuf,
    /// The file for the private key, instead of DIR/raw.key.
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// The file for the public key, instead of DIR/raw.pub.
    #[arg(long, value_name = "FILE")]
    public: Option<PathBuf>,
    #[command(flatten)]
    force: Force,
}

/// Make a whole tree at once: root, intermediate, server and client.
///
/// Writes a .pem and a .key file for each of root, intermediate, server and client. server.pem and client.pem
/// also hold the intermediate certificate. root.pem is the trust anchor of both sides.
#[derive(ClapArgs)]
#[command(
    visible_alias = "tree",
    after_help = "\
Examples:
  dunlin pki demo --out demo
  dunlin pki demo --out demo --key-type ed25519 --lean --san gw.local --client sensor-7"
)]
pub(super) struct Demo {
    /// The directory for the files.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// A subject alternative name of the server [default: localhost and 127.0.0.1]. May be repeated.
    #[arg(long = "san", value_name = "NAME", value_parser = alt_name)]
    names: Vec<AltName>,
    /// The name of the client.
    #[arg(long, value_name = "NAME|DN", default_value = "device-1", value_parser = subject)]
    client: Subject,
    /// For how many days the certificates are valid.
    #[arg(long, value_name = "N", default_value_t = DEMO_DAYS, value_parser = value_parser!(u32).range(1..))]
    days: u32,
    #[command(flatten)]
    lean: Lean,
    #[command(flatten)]
    key: KeyArg,
    #[command(flatten)]
    force: Force,
}

#[derive(ClapArgs)]
struct AuthorityArgs {
    /// The authority's name: a common name, or a distinguished name such as "CN=Root,O=Example".
    #[arg(long = "name", visible_alias = "subject", value_name = "NAME|DN", value_parser = subject)]
    subject: Subject,
    /// How many further authorities may stand between this one and a leaf [default: as many as its issuer
    /// allows].
    #[arg(long, value_name = "N")]
    path_len: Option<u8>,
    #[command(flatten)]
    lean: Lean,
}

impl AuthorityArgs {
    fn spec(&self, validity: Validity) -> CaSpec {
        CaSpec { subject: self.subject.clone(), validity, path_len: self.path_len, form: self.lean.form() }
    }
}

#[derive(ClapArgs)]
pub(super) struct Issuer {
    /// The issuer's certificate. The certificates above it may follow in the same file.
    #[arg(long, value_name = "CERT")]
    issuer: PathBuf,
    /// The issuer's private key.
    #[arg(long, value_name = "KEY")]
    issuer_key: PathBuf,
}

impl Issuer {
    pub(super) fn load(&self) -> Result<Authority, Error> {
        let chain = files::certificates(&self.issuer)?;
        let key = files::private_key(&self.issuer_key)?;
        Authority::load(chain, key).map_err(|error| {
            let at = match error {
                dunlin_pki::Error::KeyMismatch => &self.issuer_key,
                _ => &self.issuer,
            };
            Error::in_file(at, &error)
        })
    }

    /// Names the issuer's file if its certificate forbids the new one.
    fn refused(&self, error: dunlin_pki::Error) -> Error {
        match error {
            dunlin_pki::Error::PathTooLong => Error::in_file(&self.issuer, &error),
            error => error.into(),
        }
    }
}

#[derive(ClapArgs)]
struct KeyArg {
    /// The type of the new key.
    #[arg(long, value_name = "TYPE", default_value = "p256", value_parser = key_types())]
    key_type: KeyType,
}

impl KeyArg {
    fn generate(&self) -> Result<KeyPair, Error> {
        Ok(KeyPair::generate(self.key_type)?)
    }
}

#[derive(ClapArgs)]
struct Lean {
    /// Make the smallest certificate that common TLS stacks accept, for slow links. It has no key
    /// identifiers, so `openssl verify -x509_strict` refuses it.
    #[arg(long)]
    lean: bool,
}

impl Lean {
    fn form(&self) -> Form {
        if self.lean { Form::Lean } else { Form::Full }
    }
}

#[derive(ClapArgs)]
struct Chain {
    /// Write the new certificate only. Without this option its issuers' certificates follow, except the root:
    /// the chain that a TLS peer sends.
    #[arg(long)]
    no_chain: bool,
}

impl Chain {
    /// The part of `chain` that goes into the file.
    fn of<'a>(&self, chain: &'a [CertificateDer<'static>]) -> &'a [CertificateDer<'static>] {
        if self.no_chain { &chain[..1] } else { chain }
    }
}

#[derive(ClapArgs)]
struct Times {
    /// When the validity begins: YYYY-MM-DD or YYYY-MM-DDThh:mm:ssZ [default: an hour ago].
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    not_before: Option<SystemTime>,
    /// When the validity ends, in the same form.
    #[arg(long, value_name = "TIME", value_parser = parse_time, conflicts_with = "days")]
    not_after: Option<SystemTime>,
    /// For how many days the certificate is valid [default: 3650 for a root, 1825 for an intermediate
    /// authority, 365 for a leaf, but not longer than its issuer].
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..))]
    days: Option<u32>,
}

impl Times {
    /// The validity asked for. By default it lasts `default_days`, but not longer than the issuer's.
    fn validity(&self, default_days: u32, issuer: Option<&Authority>) -> Result<Validity, Error> {
        let not_before = self.not_before.unwrap_or_else(Validity::now);
        Ok(match (self.not_after, self.days) {
            (Some(not_after), _) => Validity::new(not_before, not_after)?,
            (None, Some(days)) => Validity::days_from(not_before, days)?,
            (None, None) => {
                let validity = Validity::days_from(not_before, default_days)?;
                issuer.map_or(validity, |issuer| validity.ending_by(issuer.not_after()))
            }
        })
    }
}

#[derive(ClapArgs)]
struct Force {
    /// Replace existing files.
    #[arg(long)]
    force: bool,
}

#[derive(ClapArgs)]
struct Output {
    /// The directory for the certificate and its key. The files are named after the command, e.g. ca.pem and
    /// ca.key.
    #[arg(long, value_name = "DIR", default_value = ".")]
    out: PathBuf,
    /// The file for the certificate, instead of the one in DIR.
    #[arg(long, value_name = "FILE")]
    cert: Option<PathBuf>,
    /// The file for the private key, instead of the one in DIR.
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    #[command(flatten)]
    force: Force,
}

impl Output {
    fn targets(&self, stem: &str) -> Targets {
        let or_in_directory = |path: &Option<PathBuf>, name: String| match path {
            Some(path) => path.clone(),
            None => self.out.join(name),
        };
        Targets {
            certificate: or_in_directory(&self.cert, format!("{stem}.pem")),
            key: or_in_directory(&self.key, format!("{stem}.key")),
            existing: Existing::from_force(self.force.force),
            directory: self.out.clone(),
        }
    }
}

/// The files for a certificate and its key.
struct Targets {
    certificate: PathBuf,
    key: PathBuf,
    existing: Existing,
    /// This directory is created if it does not exist; others must exist.
    directory: PathBuf,
}

impl Targets {
    /// Creates the directory and checks that the files can be written.
    fn prepare(&self) -> Result<(), Error> {
        files::check_new(&[&self.certificate, &self.key], self.existing)?;
        prepare_directory(&self.directory, &[&self.certificate, &self.key])
    }

    /// Writes the key first: if the second write fails, a key without a certificate does no harm.
    fn write(&self, chain: &[CertificateDer<'_>], key: &KeyPair, out: &mut dyn Write) -> Result<(), Error> {
        write_key(&self.key, key, self.existing, out)?;
        let pem = certificates_to_pem(chain)?;
        files::write(&self.certificate, pem.as_bytes(), Access::Public, self.existing)?;
        let sizes: Vec<_> = chain.iter().map(|der| der.len().to_string()).collect();
        report(&self.certificate, &format!("certificate, {} bytes", sizes.join(" + ")), out)
    }
}

/// Creates `directory` if one of `files` goes into it, and checks that all can be written. Other directories
/// must exist.
fn prepare_directory(directory: &Path, files: &[&Path]) -> Result<(), Error> {
    if files.iter().any(|file| file.parent() == Some(directory)) {
        files::create_directory(directory)?;
    }
    files.iter().try_for_each(|file| files::check_writable(file))
}

fn write_key(path: &Path, key: &KeyPair, existing: Existing, out: &mut dyn Write) -> Result<(), Error> {
    files::write(path, key.to_pem()?.as_bytes(), Access::Secret, existing)?;
    report(path, &format!("private key, {}", key.key_type()), out)
}

fn report(path: &Path, what: &str, out: &mut dyn Write) -> Result<(), Error> {
    writeln!(out, "{}: {what}", printable(&path.display().to_string()))?;
    Ok(())
}

/// `dunlin pki ca`
pub(super) fn ca(args: &Ca, out: &mut dyn Write) -> Result<(), Error> {
    let targets = args.output.targets("ca");
    targets.prepare()?;
    let spec = args.authority.spec(args.times.validity(ROOT_DAYS, None)?);
    let root = Authority::root(&spec, args.key.generate()?)?;
    targets.write(root.chain(), root.key(), out)
}

/// `dunlin pki intermediate`
pub(super) fn intermediate(args: &Intermediate, out: &mut dyn Write) -> Result<(), Error> {
    let targets = args.output.targets("intermediate");
    targets.prepare()?;
    let issuer = args.issuer.load()?;
    let spec = args.authority.spec(args.times.validity(INTERMEDIATE_DAYS, Some(&issuer))?);
    let authority = issuer.intermediate(&spec, args.key.generate()?).map_err(|e| args.issuer.refused(e))?;
    targets.write(args.chain.of(authority.chain()), authority.key(), out)
}

/// `dunlin pki leaf`
pub(super) fn leaf(args: &Leaf, out: &mut dyn Write) -> Result<(), Error> {
    let targets = args.output.targets("leaf");
    targets.prepare()?;
    let issuer = args.issuer.load()?;
    let purposes = match (args.server, args.client) {
        (true, false) => BTreeSet::from([Purpose::Server]),
        (false, true) => BTreeSet::from([Purpose::Client]),
        _ => BTreeSet::from([Purpose::Server, Purpose::Client]),
    };
    if args.names.is_empty() && purposes.contains(&Purpose::Server) {
        let advice = "give the host that clients connect to, or --client for a client's certificate";
        return Err(Error::usage("--san", "missing, and clients check a server by it", advice));
    }
    let spec = LeafSpec {
        subject: args.subject.clone().unwrap_or_default(),
        names: args.names.clone(),
        purposes,
        validity: args.times.validity(LEAF_DAYS, Some(&issuer))?,
        form: args.lean.form(),
    };
    let identity = issuer.issue(&spec, args.key.generate()?).map_err(|e| args.issuer.refused(e))?;
    targets.write(args.chain.of(&identity.chain), &identity.key, out)
}

/// `dunlin pki raw-key`
pub(super) fn raw_key(args: &RawKey, out: &mut dyn Write) -> Result<(), Error> {
    let existing = Existing::from_force(args.force.force);
    let private = args.key.clone().unwrap_or_else(|| args.out.join("raw.key"));
    let public = args.public.clone().unwrap_or_else(|| args.out.join("raw.pub"));
    files::check_new(&[&private, &public], existing)?;
    prepare_directory(&args.out, &[&private, &public])?;
    let key = args.key_type.generate()?;
    write_key(&private, &key, existing, out)?;
    files::write(&public, key.public_key_pem()?.as_bytes(), Access::Public, existing)?;
    report(&public, &format!("public key, {} bytes", key.public_key().len()), out)
}

/// `dunlin pki demo`
pub(super) fn demo(args: &Demo, out: &mut dyn Write) -> Result<(), Error> {
    let mut spec = TreeSpec::new(args.key.key_type, args.days)?;
    spec.form = args.lean.form();
    spec.client = args.client.clone();
    if !args.names.is_empty() {
        spec.server_names.clone_from(&args.names);
    }
    let targets = ["root", "intermediate", "server", "client"].map(|stem| Targets {
        certificate: args.out.join(format!("{stem}.pem")),
        key: args.out.join(format!("{stem}.key")),
        existing: Existing::from_force(args.force.force),
        directory: args.out.clone(),
    });
    targets.iter().try_for_each(Targets::prepare)?;
    let tree = Tree::generate(&spec)?;
    let [root, intermediate, server, client] = targets;
    root.write(tree.root.chain(), tree.root.key(), out)?;
    intermediate.write(tree.intermediate.chain(), tree.intermediate.key(), out)?;
    server.write(&tree.server.chain, &tree.server.key, out)?;
    client.write(&tree.client.chain, &tree.client.key, out)
}

fn key_types() -> impl TypedValueParser<Value = KeyType> {
    PossibleValuesParser::new(KeyType::ALL.map(KeyType::name)).try_map(|name| name.parse::<KeyType>())
}

fn subject(text: &str) -> Result<Subject, String> {
    text.parse().map_err(reason)
}

fn alt_name(text: &str) -> Result<AltName, String> {
    text.parse().map_err(reason)
}

/// The reason and the advice; clap itself names the argument.
fn reason(error: dunlin_pki::Error) -> String {
    format!("{error}; {}", error.advice())
}
