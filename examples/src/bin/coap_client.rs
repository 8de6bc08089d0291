//! A CoAP client over DTLS: it sends a request and prints the response, or observes a resource and prints
//! each notification.
//!
//! Run it: `cargo run -p dunlin-examples --bin coap_client -- 127.0.0.1:5684 psk sensor-7
//! 000102030405060708090a0b0c0d0e0f get /light`
//!
//! The server is `coap_server`, or any other with `coaps`. With certificates, its name must be `localhost`.
#![forbid(unsafe_code)]

use std::net::SocketAddr;
use std::sync::Arc;

use dunlin::ServerAddress;
use dunlin_coap::CoapClient;
use dunlin_coap::coap_lite::{CoapOption, CoapRequest, CoapResponse, RequestType};
use dunlin_examples::coap::{Arguments, Failure};
use dunlin_tokio::DtlsEndpoint;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let usage = " get|put|post|delete|observe PATH[?QUERY] [PAYLOAD]";
    let arguments = Arguments::read(usage)?;
    let [method, path, payload @ ..] = &arguments.rest[..] else {
        return Err(format!("no method or no path; after the credentials, use:{usage}").into());
    };
    let mut request = CoapRequest::<SocketAddr>::new();
    request.set_method(match method.as_str() {
        "get" | "observe" => RequestType::Get,
        "put" => RequestType::Put,
        "post" => RequestType::Post,
        "delete" => RequestType::Delete,
        other => return Err(format!("unknown method {other:?}; use:{usage}").into()),
    });
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    if path != "/" {
        request.set_path(path);
    }
    for part in query.split('&').filter(|part| !part.is_empty()) {
        request.message.add_option(CoapOption::UriQuery, part.as_bytes().to_vec());
    }
    request.message.payload = payload.join(" ").into_bytes();
    let observes = method == "observe";

    let address = arguments.address;
    let local: SocketAddr = if address.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" }.parse()?;
    let name = ServerAddress::parse("localhost", address.port())?;
    let config = Arc::new(arguments.client()?);
    let dtls = DtlsEndpoint::bind(local).await?.connect(&config, name, address).await?;
    let client = CoapClient::new(dtls)?;
    if let Some(server) = &client.negotiated().peer {
        println!("the server is {server}");
    }
    if observes {
        let mut observation = client.observe(request);
        while let Some(response) = observation.next().await {
            print(&response?);
        }
    } else {
        print(&client.request(request).await?);
    }
    Ok(())
}

fn print(response: &CoapResponse) {
    println!("{:?}: {}", response.get_status(), String::from_utf8_lossy(&response.message.payload));
}
