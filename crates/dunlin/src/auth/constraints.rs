//! Name constraints (RFC 5280 §4.2.1.10) for the names that webpki does not compare: URIs, and e-mail
//! addresses and host names in the subject. Without these checks, a CA for some names could certify any other
//! as such a name.

use alloc::vec::Vec;
use core::cell::Cell;

use webpki::{Cert, Error, VerifiedPath};

use super::certificate::{COMMON_NAME, attributes, extension};
use super::der::tlv;

/// id-emailAddress (RFC 5280 §A.1).
const EMAIL_ADDRESS: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 1];

/// The tags of a GeneralName (RFC 5280 §4.2.1.6).
const RFC822_NAME: u8 = 0x81;
const DNS_NAME: u8 = 0x82;

/// Checks the names below each authority of a path that has constraints. Returns whether the leaf's common
/// name may be an identity: a common name that looks like no host name to this check could still look like
/// one to an application.
pub(super) fn check(path: &VerifiedPath<'_>) -> Result<bool, Error> {
    let leaf = path.end_entity();
    let mut is_identity = true;
    // The certificates so far, from the leaf upwards, that the next authority's constraints apply to.
    let mut below: Vec<&Cert<'_>> = alloc::vec![leaf];
    for authority in path.intermediate_certificates() {
        if let Some(constraints) = extension(&authority.der(), [0x55, 0x1d, 0x1e]) {
            let (_, constraints, _) = tlv(constraints).ok_or(Error::BadDer)?;
            is_identity &= obey(leaf, &below, constraints)?;
        }
        // RFC 5280 §6.1.3 (b): they do not apply to self-issued certificates other than the last one of the
        // path.
        if authority.issuer() != authority.subject() {
            below.push(authority);
        }
    }
    if let Some(constraints) = path.anchor().name_constraints.as_deref() {
        is_identity &= obey(leaf, &below, constraints)?;
    }
    Ok(is_identity)
}

/// Checks the names of the certificates below an authority against its constraints. Returns whether they
/// leave the leaf's common name an identity.
fn obey(leaf: &Cert<'_>, below: &[&Cert<'_>], constraints: &[u8]) -> Result<bool, Error> {
    // No constraint is compared with a URI: process the constraint or reject the certificate.
    if leaf.valid_uri_names().next().is_some() {
        return Err(Error::NameConstraintViolation);
    }
    for certificate in below {
        let addresses = attributes(certificate.subject(), EMAIL_ADDRESS).ok_or(Error::BadDer)?;
        for (tag, address) in addresses {
            // IA5String is the only type of this attribute.
            let address = if tag == 0x16 { Some(address) } else { None };
            allow(constraints, RFC822_NAME, &|base, is_excluded| match address.and_then(mailbox) {
                Some(mailbox) if !base.is_empty() => is_email_within(mailbox, base),
                _ => is_excluded,
            })?;
        }
    }
    // As OpenSSL: a common name is a host name only if there is no dNSName, and if it looks like one. Beside
    // a dNSName that can be read, it is no identity (`X509Identity`).
    if leaf.valid_dns_names().next().is_some() {
        return Ok(true);
    }
    let is_constrained = Cell::new(false);
    let mut is_checked = true;
    for (tag, name) in attributes(leaf.subject(), COMMON_NAME).ok_or(Error::BadDer)? {
        let name = characters(tag, name);
        let is_other = name.as_ref().is_some_and(|name| !is_host_name(name));
        // A pattern such as `*.example.org` matches `-a.example.org`, but not a text without a period.
        is_checked &= !is_other || name.as_ref().is_some_and(|name| !name.contains(&b'.'));
        allow(constraints, DNS_NAME, &|base, is_excluded| {
            is_constrained.set(true);
            match &name {
                Some(name) if !is_other => is_host_within(name, base),
                Some(_) => !is_excluded,
                None => is_excluded,
            }
        })?;
    }
    Ok(is_checked || !is_constrained.get())
}

/// Checks a name of the kind `tag`. `is_within` compares it with the base of a subtree, and learns whether
/// that is an excluded one.
fn allow(constraints: &[u8], tag: u8, is_within: &dyn Fn(&[u8], bool) -> bool) -> Result<(), Error> {
    /// permittedSubtrees [0] and excludedSubtrees [1].
    const PERMITTED: u8 = 0xa0;
    const EXCLUDED: u8 = 0xa1;
    let mut rest = constraints;
    while !rest.is_empty() {
        let (kind, mut subtrees, after) = tlv(rest).ok_or(Error::BadDer)?;
        let mut is_constrained = false;
        let mut is_inside = false;
        while !subtrees.is_empty() {
            let (_, subtree, others) = tlv(subtrees).ok_or(Error::BadDer)?;
            let (base_tag, base, _) = tlv(subtree).ok_or(Error::BadDer)?;
            if base_tag == tag {
                is_constrained = true;
                is_inside |= is_within(base, kind == EXCLUDED);
            }
            subtrees = others;
        }
        match kind {
            PERMITTED if is_constrained && !is_inside => return Err(Error::NameConstraintViolation),
            EXCLUDED if is_inside => return Err(Error::NameConstraintViolation),
            PERMITTED | EXCLUDED => {}
            _ => return Err(Error::BadDer),
        }
        rest = after;
    }
    Ok(())
}

/// The local part and the host of an address.
fn mailbox(address: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = address.iter().rposition(|byte| *byte == b'@')?;
    Some((address.get(..at)?, address.get(at + 1..)?))
}

/// Whether an address is within a base: a mailbox, a host, or all hosts of a domain, which begins with a
/// period.
fn is_email_within((local, host): (&[u8], &[u8]), base: &[u8]) -> bool {
    match (mailbox(base), base.first()) {
        // RFC 5321 §2.4: only the local part may have a case.
        (Some((of_base, base)), _) => local == of_base && host.eq_ignore_ascii_case(base),
        (None, Some(b'.')) => is_suffix(host, base),
        (None, _) => host.eq_ignore_ascii_case(base),
    }
}

/// Whether a host is the base or below it. A base that begins with a period has only hosts below it.
fn is_host_within(name: &[u8], base: &[u8]) -> bool {
    match base.first() {
        None => true,
        Some(b'.') => is_suffix(name, base),
        Some(_) => {
            let at = name.len().checked_sub(base.len() + 1);
            name.eq_ignore_ascii_case(base)
                || is_suffix(name, base) && at.is_some_and(|at| name.get(at) == Some(&b'.'))
        }
    }
}

/// Whether `name` is longer than `end` and ends in it.
fn is_suffix(name: &[u8], end: &[u8]) -> bool {
    let at = name.len().checked_sub(end.len()).filter(|at| *at > 0);
    at.and_then(|at| name.get(at..)).is_some_and(|tail| tail.eq_ignore_ascii_case(end))
}

/// Whether a common name looks like a host name to OpenSSL: at least two labels of letters, digits, `_`, and
/// hyphens inside.
fn is_host_name(name: &[u8]) -> bool {
    let is_label = |label: &[u8]| {
        let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
        label.first().is_some_and(is_plain)
            && label.last().is_some_and(is_plain)
            && label.iter().all(|byte| is_plain(byte) || *byte == b'-')
    };
    name.contains(&b'.') && name.split(|byte| *byte == b'.').all(is_label)
}

/// A text in ASCII, without a final period; other characters are question marks. `None` if its type is
/// unknown, or if it contains a zero, which ends a text for some readers.
fn characters(tag: u8, text: &[u8]) -> Option<Vec<u8>> {
    let width = match tag {
        // UTF8String, PrintableString, TeletexString and IA5String.
        0x0c | 0x13 | 0x14 | 0x16 => 1,
        // BMPString and UniversalString.
        0x1e => 2,
        0x1c => 4,
        _ => return None,
    };
    let ascii = |unit: &[u8]| match unit.split_last() {
        Some((low, high)) if low.is_ascii() && high.iter().all(|byte| *byte == 0) => *low,
        _ => b'?',
    };
    let mut name: Vec<u8> = text.chunks(width).map(ascii).collect();
    if name.last() == Some(&b'.') {
        name.pop();
    }
    (!name.contains(&0)).then_some(name)
}
