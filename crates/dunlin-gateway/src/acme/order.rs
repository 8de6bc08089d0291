//! An order (RFC 8555 §7.4): an account, an authorization for each name, and the certificate.

use std::fmt;
use std::time::{Duration, SystemTime};

use der::{Decode, Encode};
use dunlin::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use dunlin_pki::KeyPair;
use instant_acme::{
    Account, AccountCredentials, AuthorizationStatus, CertificateIdentifier, ChallengeType, Error,
    Identifier, NewAccount, NewOrder, Order, OrderStatus, Problem, RenewalInfo, RetryPolicy,
};
use rcgen::{CertificateParams, DistinguishedName};
use x509_cert::Certificate;
use x509_cert::ext::pkix::AuthorityKeyIdentifier;
use zeroize::Zeroizing;

use super::files::{Answer, Home, Key};
use super::http::AcmeHttp;
use crate::config::{AcmeChallenge, AcmeConfig};

/// How long the gateway waits for an authority: first for the validation of all names, then for the
/// certificate.
const PATIENCE: Duration = Duration::from_secs(120);

/// The longest text of an authority in the log, in characters.
const MAX_TEXT: usize = 300;

/// Why there is no certificate, in one line: the step that failed, and its reason.
#[derive(Debug)]
pub(crate) struct Failure {
    step: String,
    why: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { step, why } = self;
        write!(f, "{step}: ")?;
        // The text comes from the network.
        for c in why.chars().take(MAX_TEXT) {
            if c.is_control() { write!(f, "{}", c.escape_default())? } else { write!(f, "{c}")? }
        }
        Ok(())
    }
}

impl Failure {
    pub(crate) fn new(step: impl Into<String>, why: impl fmt::Display) -> Self {
        Self { step: step.into(), why: why.to_string() }
    }

    /// The failure of this step.
    pub(crate) fn of<E: fmt::Display>(step: &str) -> impl Fn(E) -> Self + '_ {
        move |why| Self::new(step, why)
    }

    fn acme(step: &str) -> impl Fn(Error) -> Self + '_ {
        move |error| Self::new(step, told(&error))
    }
}

/// The error in words: instant-acme puts "API error" before the authority's words.
fn told(error: &Error) -> String {
    match error {
        Error::Api(problem) => of_problem(problem),
        Error::Json(error) => format!("the response is no JSON of ACME: {error}"),
        Error::Timeout(_) => format!("no result within {} s", PATIENCE.as_secs()),
        error => error.to_string(),
    }
}

fn of_problem(problem: &Problem) -> String {
    let kind = problem.r#type.as_deref().unwrap_or("an error without a type");
    let kind = kind.strip_prefix("urn:ietf:params:acme:error:").unwrap_or(kind);
    let mut text = format!("{kind}: {}", problem.detail.as_deref().unwrap_or("no detail"));
    for inner in &problem.subproblems {
        text.push_str(&format!("; {inner}"));
    }
    text
}

/// Whether the authority does not know the account, for example because it has lost its memory.
fn is_unknown_account(error: &Error) -> bool {
    let kind = "urn:ietf:params:acme:error:accountDoesNotExist";
    matches!(error, Error::Api(problem) if problem.r#type.as_deref() == Some(kind))
}

/// Orders a certificate. Returns it in PEM, behind its new key.
///
/// # Errors
/// The step that failed.
pub(crate) async fn order(
    config: &AcmeConfig,
    home: &Home,
    http: &AcmeHttp,
) -> Result<Zeroizing<String>, Failure> {
    let names: Vec<_> = config.names.iter().cloned().map(Identifier::Dns).collect();
    let wanted = NewOrder::new(&names);
    let ordered = match account(home, http).await? {
        Some(account) => account.new_order(&wanted).await,
        None => new_account(config, home, http).await?.new_order(&wanted).await,
    };
    let ordered = match ordered {
        Err(error) if is_unknown_account(&error) => {
            new_account(config, home, http).await?.new_order(&wanted).await
        }
        ordered => ordered,
    };
    let mut order = ordered.map_err(Failure::acme("the order was refused"))?;
    // The answers stay until the authority has looked at all of them.
    let answers = answer(config, home, &mut order).await?;
    let validated = order.poll_ready(&RetryPolicy::new().timeout(PATIENCE)).await;
    drop(answers);
    match validated {
        Ok(OrderStatus::Ready) => {}
        Ok(_) => return Err(failed_check(&mut order, config.challenge).await),
        Err(error) => {
            return Err(match &error {
                Error::Api(_) => failed_check(&mut order, config.challenge).await,
                error => Failure::new("the authority validates no name", told(error)),
            });
        }
    }
    let (key, request) = request(config).await?;
    order.finalize_csr(&request).await.map_err(Failure::acme("the certificate request was refused"))?;
    let chain = order.poll_certificate(&RetryPolicy::new().timeout(PATIENCE)).await;
    let chain = chain.map_err(Failure::acme("the authority issues no certificate"))?;
    Ok(Zeroizing::new(format!("{}{chain}", *key)))
}

/// The account in the store.
pub(crate) async fn account(home: &Home, http: &AcmeHttp) -> Result<Option<Account>, Failure> {
    let Some(content) = home.read_account().map_err(Failure::of("account.json cannot be read"))? else {
        return Ok(None);
    };
    let credentials: AccountCredentials =
        serde_json::from_slice(&content).map_err(Failure::of("account.json is damaged; remove it"))?;
    let account = Account::builder_with_http(Box::new(http.clone())).from_credentials(credentials).await;
    account.map(Some).map_err(Failure::acme("the directory cannot be used"))
}

async fn new_account(config: &AcmeConfig, home: &Home, http: &AcmeHttp) -> Result<Account, Failure> {
    let contact: Vec<_> = config.contact.iter().map(String::as_str).collect();
    let wanted = NewAccount { contact: &contact, terms_of_service_agreed: true, only_return_existing: false };
    let builder = Account::builder_with_http(Box::new(http.clone()));
    let created = builder.create(&wanted, config.directory.clone(), None).await;
    let (account, credentials) = created.map_err(|error| match &error {
        Error::Api(_) => Failure::new("the account was refused", told(&error)),
        error => Failure::new("the directory cannot be used", told(error)),
    })?;
    let content = serde_json::to_vec(&credentials).map(Zeroizing::new);
    let content = content.map_err(Failure::of("the account cannot be written"))?;
    home.write_account(&content).map_err(Failure::of("account.json cannot be written"))?;
    Ok(account)
}

const fn kind_of(challenge: AcmeChallenge) -> ChallengeType {
    match challenge {
        AcmeChallenge::TlsAlpn01 => ChallengeType::TlsAlpn01,
        AcmeChallenge::Http01 => ChallengeType::Http01,
    }
}

/// Prepares the answers to the challenges of all names, and asks the authority to look at them.
async fn answer(config: &AcmeConfig, home: &Home, order: &mut Order) -> Result<Vec<Answer>, Failure> {
    let mut answers = vec![];
    let mut authorizations = order.authorizations();
    while let Some(authorization) = authorizations.next().await {
        let mut authorization = authorization.map_err(Failure::acme("no authorization"))?;
        let name = authorization.identifier().to_string();
        match authorization.status {
            AuthorizationStatus::Valid => continue,
            AuthorizationStatus::Pending => {}
            status => {
                return Err(Failure::new(format!("authorization of {name}"), format!("it is {status:?}")));
            }
        }
        let kind = config.challenge.name();
        let Some(mut challenge) = authorization.challenge(kind_of(config.challenge)) else {
            let step = format!("authorization of {name}");
            return Err(Failure::new(step, format!("the authority offers no challenge {kind}")));
        };
        let key = match config.challenge {
            AcmeChallenge::TlsAlpn01 => Key::Name(&name),
            AcmeChallenge::Http01 => Key::Token(&challenge.token),
        };
        let answer = home.answer(&key, challenge.key_authorization().as_str());
        answers.push(answer.map_err(Failure::of("the answer to a challenge cannot be written"))?);
        let step = format!("{kind} of {name}");
        challenge.set_ready().await.map_err(Failure::acme(&step))?;
    }
    Ok(answers)
}

/// The first check that failed.
async fn failed_check(order: &mut Order, challenge: AcmeChallenge) -> Failure {
    let mut authorizations = order.authorizations();
    while let Some(Ok(mut authorization)) = authorizations.next().await {
        // The state in hand is from before the check.
        let Ok(state) = authorization.refresh().await else { break };
        let problem = state.challenges.iter().find_map(|challenge| {
            challenge.error.as_ref().map(|problem| (challenge.r#type.clone(), problem.clone()))
        });
        let name = state.identifier().to_string();
        if let Some((kind, problem)) = problem {
            let kind = match kind {
                ChallengeType::TlsAlpn01 => "tls-alpn-01".to_owned(),
                ChallengeType::Http01 => "http-01".to_owned(),
                kind => format!("{kind:?}"),
            };
            return Failure::new(format!("{kind} of {name} failed"), of_problem(&problem));
        }
    }
    match order.state().error.as_ref() {
        Some(problem) => Failure::new("the order failed", of_problem(problem)),
        None => Failure::new(format!("{} failed", challenge.name()), "the authority does not say why"),
    }
}

/// A new key in PEM, and the request for a certificate with the names (RFC 2986).
async fn request(config: &AcmeConfig) -> Result<(Zeroizing<String>, Vec<u8>), Failure> {
    let typ = config.key_type;
    let names = config.names.clone();
    // An RSA key takes a while.
    let made = tokio::task::spawn_blocking(move || {
        let failed = |error: &dyn fmt::Display| Failure::new("no certificate request", error);
        let pair = KeyPair::generate(typ).map_err(|error| failed(&error))?;
        let pkcs8 = pair.to_pkcs8().map_err(|error| failed(&error))?;
        let pkcs8 = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(&pkcs8[..]));
        let signer = rcgen::KeyPair::try_from(&pkcs8).map_err(|error| failed(&error))?;
        let mut params = CertificateParams::new(names).map_err(|error| failed(&error))?;
        params.distinguished_name = DistinguishedName::new();
        let request = params.serialize_request(&signer).map_err(|error| failed(&error))?;
        Ok((pair.to_pem().map_err(|error| failed(&error))?, request.der().to_vec()))
    });
    made.await.unwrap_or_else(|error| Err(Failure::new("no certificate request", error)))
}

/// When the authority wants the certificate to be renewed (RFC 9773), as a window of time, and how long this
/// answer holds. `None` if the authority does not say.
pub(crate) async fn renewal_window(
    home: &Home,
    http: &AcmeHttp,
    leaf: &CertificateDer<'_>,
) -> Option<([SystemTime; 2], Duration)> {
    let account = account(home, http).await.ok()??;
    let (RenewalInfo { suggested_window, .. }, again) =
        account.renewal_info(&certificate_id(leaf)?).await.ok()?;
    Some(([suggested_window.start, suggested_window.end].map(SystemTime::from), again))
}

/// RFC 9773 §4.1: the key identifier of the issuer and the serial number.
fn certificate_id(leaf: &CertificateDer<'_>) -> Option<CertificateIdentifier<'static>> {
    let certificate = Certificate::from_der(leaf).ok()?;
    let tbs = certificate.tbs_certificate();
    let (_, issuer) = tbs.get_extension::<AuthorityKeyIdentifier>().ok()??;
    let issuer = issuer.key_identifier?;
    let serial = tbs.serial_number().to_der().ok()?;
    // The content of the INTEGER, without its tag and its length.
    let serial = serial.get(2..)?;
    Some(CertificateIdentifier::new(issuer.as_bytes().into(), serial.into()).into_owned())
}
