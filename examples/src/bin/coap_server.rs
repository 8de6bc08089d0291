//! A CoAP server over DTLS, with a lamp that clients switch and observe. Its handler knows which client asks.
//!
//! Run it: `cargo run -p dunlin-examples --bin coap_server -- 127.0.0.1:5684 psk sensor-7
//! 000102030405060708090a0b0c0d0e0f`
//!
//! Then use `coap_client`, or libcoap's client:
//! `coap-client -m put -e on -u sensor-7 -k KEY coaps://127.0.0.1/light`, whose KEY is text. A client with a
//! certificate needs `x509 DIRECTORY` in place of `psk …`, with the files of
//! `dunlin pki demo --out DIRECTORY`.
#![forbid(unsafe_code)]

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use dunlin_coap::coap_lite::{CoapRequest, CoapResponse, RequestType, ResponseType};
use dunlin_coap::{Changes, CoapError, CoapServer, Handler, Peer};
use dunlin_examples::coap::{Arguments, Failure};
use dunlin_tokio::DtlsEndpoint;

/// The server's resources.
struct Resources {
    lamp: Mutex<Vec<u8>>,
    changes: Changes,
}

impl Handler for Resources {
    async fn handle(&self, mut request: CoapRequest<Peer>) -> Option<CoapResponse> {
        let mut response = request.response.take()?;
        let peer = request.source.as_ref().and_then(Peer::identity);
        let mut lamp = self.lamp.lock().unwrap_or_else(PoisonError::into_inner);
        match (request.get_method(), request.get_path().as_str()) {
            (RequestType::Get, "") => response.message.payload = b"Dunlin".to_vec(),
            (RequestType::Get, "whoami") => {
                response.message.payload = peer.map(ToString::to_string).unwrap_or_default().into_bytes();
            }
            (RequestType::Get, "light") => {
                response.message.payload.clone_from(&lamp);
                // Clients may observe the lamp.
                response.message.set_observe_value(0);
            }
            (RequestType::Put, "light") => {
                *lamp = request.message.payload;
                self.changes.notify("light");
                response.set_status(ResponseType::Changed);
            }
            (RequestType::Get, _) => response.set_status(ResponseType::NotFound),
            _ => response.set_status(ResponseType::MethodNotAllowed),
        }
        Some(response)
    }

    fn disconnected(&self, address: SocketAddr, error: &CoapError) {
        eprintln!("{address}: {error}");
    }
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let arguments = Arguments::read("")?;
    let endpoint = DtlsEndpoint::bind(arguments.address).await?;
    endpoint.set_server(Some(Arc::new(arguments.server()?)));
    println!("listening on {}", endpoint.local_addr());
    let changes = Changes::default();
    let resources = Resources { lamp: Mutex::new(b"off".to_vec()), changes: changes.clone() };
    CoapServer::new(endpoint, resources).with_changes(changes).run().await;
    Ok(())
}
