//! Orders cipher suites and groups by the preference of the options. Among equals the client's order decides,
//! which a server learns from the ClientHello.

use dunlin::ClientHelloInfo;
use dunlin::crypto::{CryptoProvider, KeyExchangeGroup, Tls12CipherSuite, Tls13CipherSuite};
use dunlin::wire::NamedGroup;

use crate::Failure;
use crate::options::Options;

/// The TLS 1.3 cipher suites that the runner knows, in the order of preference.
const TLS13: [&Tls13CipherSuite; 3] = [
    &dunlin_awslc::TLS13_AES_128_GCM_SHA256,
    &dunlin_awslc::TLS13_AES_256_GCM_SHA384,
    &dunlin_awslc::TLS13_CHACHA20_POLY1305_SHA256,
];

/// The default groups.
const GROUPS: [NamedGroup; 4] =
    [NamedGroup::X25519MLKEM768, NamedGroup::X25519, NamedGroup::SECP256R1, NamedGroup::SECP384R1];

/// Whether a server of BoringSSL treats all suites as equals.
const fn are_equals(options: &Options) -> bool {
    options.cipher_suites.is_none() && !options.server_preference
}

/// The TLS 1.3 suites.
pub(crate) fn tls13(options: &Options, client: Option<&ClientHelloInfo>) -> Vec<&'static Tls13CipherSuite> {
    let mut suites = TLS13.to_vec();
    if let Some(client) = client.filter(|_| are_equals(options)) {
        by_client_order(&mut suites, |s| s.id, &client.cipher_suites);
    }
    suites
}

/// The TLS 1.2 suites that the options name; by default all that the runner may test, except CBC. Static RSA,
/// which is for the laboratory only, comes last.
pub(crate) fn tls12(
    options: &Options,
    client: Option<&ClientHelloInfo>,
) -> Result<Vec<&'static Tls12CipherSuite>, Failure> {
    const STATIC_RSA: [&Tls12CipherSuite; 2] = [
        &dunlin_legacy::lab::TLS12_RSA_WITH_AES_128_GCM_SHA256,
        &dunlin_legacy::lab::TLS12_RSA_WITH_AES_256_GCM_SHA384,
    ];
    let all = [dunlin_awslc::tls12::TLS12_CIPHER_SUITES, &STATIC_RSA].concat();
    let theirs = client.map_or(&[][..], |client| &client.cipher_suites);
    let is_aes = |s: &Tls12CipherSuite| s.id.name().is_some_and(|name| name.contains("AES"));
    let names = match options.cipher_suites.as_deref() {
        None | Some("ALL:3DES") => {
            let mut suites = all;
            if are_equals(options) {
                by_client_order(&mut suites, |s| s.id, theirs);
            }
            return Ok(suites);
        }
        Some("DEFAULT:!AES") => return Ok(all.iter().copied().filter(|s| !is_aes(s)).collect()),
        Some(names) => names,
    };
    let named = |name: &str| all.iter().copied().find(|s| s.id.name() == Some(name));
    let mut suites = Vec::new();
    // Brackets enclose equals.
    for equals in names.split(':') {
        let mut equals: Vec<_> = equals.trim_matches(['[', ']']).split('|').filter_map(named).collect();
        by_client_order(&mut equals, |s| s.id, theirs);
        suites.extend(equals);
    }
    if suites.is_empty() {
        Err(Failure::Unimplemented(format!("the cipher suites {names}")))
    } else {
        Ok(suites)
    }
}

/// The groups.
pub(crate) fn groups(
    options: &Options,
    provider: &CryptoProvider,
    client: Option<&ClientHelloInfo>,
) -> Result<Vec<&'static dyn KeyExchangeGroup>, Failure> {
    let mut names = if options.groups.is_empty() { GROUPS.to_vec() } else { options.groups.clone() };
    let theirs = client.map_or(&[][..], |client| &client.groups);
    let mut equals = 0;
    for at in 0..names.len() {
        if options.groups_as_the_next.get(at) != Some(&true) {
            by_client_order(names.get_mut(equals..=at).unwrap_or_default(), |name| *name, theirs);
            equals = at + 1;
        }
    }
    let group = |name: &NamedGroup| {
        provider.group(*name).ok_or_else(|| Failure::Unimplemented(format!("the group {name}")))
    };
    names.iter().map(group).collect()
}

/// Sorts equals by the client's order; those that the client does not name come last.
fn by_client_order<T, I: PartialEq>(equals: &mut [T], id: impl Fn(&T) -> I, theirs: &[I]) {
    equals.sort_by_key(|one| theirs.iter().position(|their| *their == id(one)).unwrap_or(usize::MAX));
}

#[cfg(test)]
mod tests {
    use dunlin::wire::CipherSuite;

    use super::*;

    fn options(line: &str) -> Options {
        let arguments: Vec<String> = line.split(' ').map(Into::into).collect();
        let [options, ..] = Options::parse(&arguments).unwrap();
        options
    }

    #[test]
    fn equal_suites_have_the_clients_order() {
        use CipherSuite as S;
        let names = "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256:\
                     [TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384|TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256]";
        let options = options(&format!("-cipher {names}"));
        let cipher_suites = vec![
            S::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
            S::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
            S::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
        ];
        let client = ClientHelloInfo { cipher_suites, ..ClientHelloInfo::default() };
        let suites: Vec<_> = tls12(&options, Some(&client)).unwrap().iter().map(|s| s.id).collect();
        let [chacha, aes_256, aes_128] = client.cipher_suites[..] else { panic!() };
        assert_eq!(suites, [aes_128, chacha, aes_256]);
    }

    #[test]
    fn a_flag_makes_groups_equals() {
        let options =
            options("-curves 24 -curves 23 -curves 29 -curves-flags 0 -curves-flags 1 -curves-flags 0");
        let groups = vec![NamedGroup::X25519, NamedGroup::SECP256R1, NamedGroup::SECP384R1];
        let client = ClientHelloInfo { groups, ..ClientHelloInfo::default() };
        let groups = super::groups(&options, &dunlin_awslc::provider(), Some(&client)).unwrap();
        let names: Vec<_> = groups.iter().map(|g| g.name()).collect();
        assert_eq!(names, [NamedGroup::SECP384R1, NamedGroup::X25519, NamedGroup::SECP256R1]);
    }
}
