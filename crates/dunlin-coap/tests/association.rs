//! Client and server over DTLS on loopback.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use dunlin::auth::{Psk, PskTable};
use dunlin::{ClientAuth, ClientConfig, Profile, PskSource, ServerConfig};
use dunlin_coap::coap_lite::{CoapRequest, CoapResponse, RequestType, ResponseType};
use dunlin_coap::{Changes, CoapClient, CoapError, CoapServer, Handler, Parameters, Peer};
use dunlin_tests::ends::{client_profile, server_profile};
use dunlin_tests::{KeyType, awslc, localhost};
use dunlin_tokio::DtlsEndpoint;
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;

fn psk() -> Psk {
    Psk::new("sensor-7", &[7; 32]).unwrap()
}

/// Configurations of both sides with a pre-shared key.
fn configs() -> (ClientConfig, ServerConfig) {
    let profile = || Profile::builder(awslc()).build().unwrap();
    let keys = PskSource::Here(Arc::new(PskTable::from_iter([psk()])));
    let client = ClientConfig::new(profile()).with_psks(vec![Arc::new(psk())]);
    (client, ServerConfig::psk_only(profile(), keys).unwrap())
}

async fn endpoint() -> DtlsEndpoint {
    DtlsEndpoint::bind("127.0.0.1:0".parse().unwrap()).await.unwrap()
}

/// A running server.
struct Running {
    address: SocketAddr,
    changes: Changes,
    task: JoinHandle<()>,
}

async fn serve(config: ServerConfig, parameters: Parameters, handler: impl Handler) -> Running {
    let endpoint = endpoint().await;
    endpoint.set_server(Some(Arc::new(config)));
    let address = endpoint.local_addr();
    let changes = Changes::default();
    let server = CoapServer::new(endpoint, handler).with_changes(changes.clone());
    let server = server.with_parameters(parameters).unwrap();
    Running { address, changes, task: tokio::spawn(server.run()) }
}

async fn connect(config: ClientConfig, server: SocketAddr) -> CoapClient {
    let dtls = endpoint().await.connect(&Arc::new(config), localhost(), server).await.unwrap();
    CoapClient::new(dtls).unwrap()
}

/// A client and its server, with a pre-shared key.
async fn pair(parameters: Parameters, handler: impl Handler) -> (CoapClient, Running) {
    let (client, server) = configs();
    let server = serve(server, parameters, handler).await;
    (connect(client, server.address).await, server)
}

fn get(path: &str) -> CoapRequest<()> {
    let mut request = CoapRequest::new();
    request.set_method(RequestType::Get);
    request.set_path(path);
    request
}

fn with_payload(request: CoapRequest<Peer>, payload: impl Into<Vec<u8>>) -> Option<CoapResponse> {
    let mut response = request.response?;
    response.message.payload = payload.into();
    Some(response)
}

fn text(response: Result<CoapResponse, CoapError>) -> String {
    String::from_utf8(response.unwrap().message.payload).unwrap()
}

/// Answers with the client's identity and the path.
async fn who(request: CoapRequest<Peer>) -> Option<CoapResponse> {
    let identity = request.source.as_ref().unwrap().identity().unwrap().to_string();
    let path = request.get_path();
    with_payload(request, format!("{identity} {path}"))
}

#[tokio::test]
async fn a_handler_knows_its_client() {
    let (client, _server) = pair(Parameters::default(), who).await;
    assert_eq!(text(client.request(get("/a/b")).await), "PSK sensor-7 a/b");
    let server = ServerConfig::new(server_profile(KeyType::P256).build().unwrap()).unwrap();
    let server = server.with_client_auth(ClientAuth::Required).unwrap();
    let server = serve(server, Parameters::default(), who).await;
    let client = ClientConfig::new(client_profile(KeyType::P256).build().unwrap());
    let client = connect(client, server.address).await;
    assert!(text(client.request(get("/")).await).starts_with("X.509 "));
}

#[tokio::test]
async fn many_requests_of_many_clients_get_their_own_answers() {
    let (client_config, server) = configs();
    let server = serve(server, Parameters::default(), who).await;
    let mut tasks = Vec::new();
    for _ in 0..4 {
        let client = connect(client_config.clone(), server.address).await;
        for n in 0..25 {
            let client = client.clone();
            tasks.push(tokio::spawn(async move {
                let answer = client.request(get(&format!("/{n}"))).await;
                assert_eq!(text(answer), format!("PSK sensor-7 {n}"));
            }));
        }
    }
    for task in tasks {
        task.await.unwrap();
    }
}

/// NSTART is 1, so the second request leaves only after the acknowledgement of the first, whose response
/// waits for the second.
#[tokio::test]
async fn a_slow_answer_does_not_hold_up_the_next_request() {
    let second = Arc::new(Notify::new());
    let parameters = Parameters { piggyback: Duration::from_millis(1), ..Parameters::default() };
    let handler = move |request: CoapRequest<Peer>| {
        let second = Arc::clone(&second);
        async move {
            match request.get_path().as_str() {
                "first" => second.notified().await,
                _ => second.notify_one(),
            }
            let path = request.get_path();
            with_payload(request, path)
        }
    };
    let (client, _server) = pair(parameters, handler).await;
    let (first, second) = tokio::join!(client.request(get("/first")), client.request(get("/second")));
    assert_eq!((text(first), text(second)), ("first".to_owned(), "second".to_owned()));
}

#[tokio::test]
async fn an_observer_follows_a_resource() {
    let value = Arc::new(AtomicU32::new(1));
    let current = Arc::clone(&value);
    let handler = move |request: CoapRequest<Peer>| {
        let value = current.load(Ordering::Relaxed).to_string();
        async move {
            let mut response = with_payload(request, value)?;
            response.message.set_observe_value(0);
            Some(response)
        }
    };
    let (client, server) = pair(Parameters::default(), handler).await;
    let mut observation = client.observe(get("/sensors/value"));
    assert_eq!(text(observation.next().await.unwrap()), "1");
    for n in 2..5 {
        value.store(n, Ordering::Relaxed);
        // Another resource has changed, too.
        server.changes.notify("/sensors");
        server.changes.notify("/sensors/value");
        assert_eq!(text(observation.next().await.unwrap()), n.to_string());
    }
    // Without a pause between changes, the observer still gets the latest state.
    for n in 5..500 {
        value.store(n, Ordering::Relaxed);
        server.changes.notify("sensors/value");
    }
    while text(observation.next().await.unwrap()) != "499" {}
    server.task.abort();
    loop {
        match observation.next().await {
            Some(Ok(_)) => {}
            Some(Err(error)) => break assert!(matches!(error, CoapError::Closed), "{error}"),
            None => panic!("no error"),
        }
    }
    assert!(observation.next().await.is_none());
}

#[tokio::test]
async fn an_observer_learns_of_a_change_while_the_handler_answers_the_registration() {
    let value = Arc::new(AtomicU32::new(1));
    let [called, released] = [(); 2].map(|()| Arc::new(Notify::new()));
    let current = Arc::clone(&value);
    let call = Arc::clone(&called);
    let release = Arc::clone(&released);
    let handler = move |request: CoapRequest<Peer>| {
        let read = current.load(Ordering::Relaxed);
        let call = Arc::clone(&call);
        let release = Arc::clone(&release);
        async move {
            if read == 1 {
                call.notify_one();
                release.notified().await;
            }
            let mut response = with_payload(request, read.to_string())?;
            response.message.set_observe_value(0);
            Some(response)
        }
    };
    let (client, server) = pair(Parameters::default(), handler).await;
    let mut observation = client.observe(get("/value"));
    called.notified().await;
    value.store(2, Ordering::Relaxed);
    server.changes.notify("/value");
    // The server hears of the change before the handler has answered.
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    released.notify_one();
    while text(observation.next().await.unwrap()) != "2" {}
}

#[tokio::test]
async fn a_resource_that_cannot_be_observed_answers_once() {
    let (client, _server) = pair(Parameters::default(), who).await;
    let mut observation = client.observe(get("/x"));
    assert_eq!(text(observation.next().await.unwrap()), "PSK sensor-7 x");
    assert!(observation.next().await.is_none());
}

#[tokio::test]
async fn a_handler_that_panics_answers_an_error() {
    let handler = async |request: CoapRequest<Peer>| match request.get_path().as_str() {
        "panic" => panic!("the handler of a test"),
        _ => request.response,
    };
    let (client, _server) = pair(Parameters::default(), handler).await;
    let response = client.request(get("/panic")).await.unwrap();
    assert_eq!(*response.get_status(), ResponseType::InternalServerError);
    let response = client.request(get("/")).await.unwrap();
    assert_eq!(*response.get_status(), ResponseType::Content);
}

/// A handler that reports failures.
struct Listener(mpsc::UnboundedSender<String>);

impl Handler for Listener {
    async fn handle(&self, request: CoapRequest<Peer>) -> Option<CoapResponse> {
        with_payload(request, [0; 5000])
    }

    fn failed(&self, peer: &Peer, error: &CoapError) {
        self.0.send(format!("{}: {error}", peer.identity().unwrap())).unwrap();
    }

    fn disconnected(&self, _: SocketAddr, error: &CoapError) {
        self.0.send(error.to_string()).unwrap();
    }
}

#[tokio::test]
async fn a_handler_is_told_of_failures() {
    let (told, mut heard) = mpsc::unbounded_channel();
    let (client, server) = pair(Parameters::default(), Listener(told)).await;
    let response = client.request(get("/")).await.unwrap();
    assert_eq!(*response.get_status(), ResponseType::InternalServerError);
    let failure = heard.recv().await.unwrap();
    assert!(failure.starts_with("PSK sensor-7: a message has 50"), "{failure}");
    let wrong = Psk::new("sensor-7", &[8; 32]).unwrap();
    let profile = Profile::builder(awslc()).build().unwrap();
    let config = Arc::new(ClientConfig::new(profile).with_psks(vec![Arc::new(wrong)]));
    let stranger = endpoint().await;
    // The client waits longer: anyone can forge the server's unencrypted alert.
    let task =
        tokio::spawn(async move { stranger.connect(&config, localhost(), server.address).await.is_ok() });
    let failure = heard.recv().await.unwrap();
    assert!(failure.starts_with("the handshake failed: "), "{failure}");
    task.abort();
}

#[tokio::test]
async fn requests_fail_when_the_server_has_gone() {
    let never = async |_: CoapRequest<Peer>| -> Option<CoapResponse> { std::future::pending().await };
    let (client, server) = pair(Parameters::default(), never).await;
    let waiting = client.clone();
    let request = tokio::spawn(async move { waiting.request(get("/")).await });
    server.task.abort();
    assert!(matches!(request.await.unwrap(), Err(CoapError::Closed)));
    assert!(matches!(client.request(get("/")).await, Err(CoapError::Closed)));
}
