//! A web server that answers as a test wants: a false registry, or a web server with DID documents.

#![allow(dead_code, reason = "not every test uses every part")]

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use dunlin_tokio::TlsConnector;
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;

use crate::site::Tls;

pub(crate) struct Node {
    pub(crate) port: u16,
    tls: Arc<Tls>,
    pub(crate) connector: TlsConnector,
}

impl Node {
    /// Answers each path with query by a status and a content. That of a redirection is its target.
    pub(crate) async fn new(answer: impl Fn(&str) -> (u16, Vec<u8>) + Send + Sync + 'static) -> Self {
        Self::of(Arc::new(Tls::new()), Duration::ZERO, answer).await
    }

    /// Another one, which the same clients trust.
    pub(crate) async fn beside(
        &self,
        answer: impl Fn(&str) -> (u16, Vec<u8>) + Send + Sync + 'static,
    ) -> Self {
        Self::of(Arc::clone(&self.tls), Duration::ZERO, answer).await
    }

    /// As [`Self::beside`], but it takes this time to answer with its checkpoint.
    pub(crate) async fn slow_beside(
        &self,
        delay: Duration,
        answer: impl Fn(&str) -> (u16, Vec<u8>) + Send + Sync + 'static,
    ) -> Self {
        Self::of(Arc::clone(&self.tls), delay, answer).await
    }

    async fn of(
        tls: Arc<Tls>,
        delay: Duration,
        answer: impl Fn(&str) -> (u16, Vec<u8>) + Send + Sync + 'static,
    ) -> Self {
        let tls_of_node = Arc::clone(&tls);
        let answer = Arc::new(answer);
        let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = socket.local_addr().unwrap().port();
        let connector = tls.connector.clone();
        tokio::spawn(async move {
            while let Ok((tcp, _)) = socket.accept().await {
                let acceptor = tls_of_node.acceptor.clone();
                let answer = Arc::clone(&answer);
                tokio::spawn(async move {
                    let Ok(tls) = acceptor.accept(tcp).await else { return };
                    let service = service_fn(|request: Request<Incoming>| {
                        let path = request.uri().path_and_query().unwrap().as_str();
                        let (status, content) = answer(path);
                        let delay = if path == "/checkpoint" { delay } else { Duration::ZERO };
                        let mut answer = Response::builder().status(status);
                        if (300..400).contains(&status) {
                            answer = answer.header("Location", &*content);
                        }
                        let answer = answer.body(Full::<Bytes>::from(content)).unwrap();
                        async move {
                            tokio::time::sleep(delay).await;
                            Ok::<_, Infallible>(answer)
                        }
                    });
                    // The client may go at any time.
                    let _ = http1::Builder::new().serve_connection(TokioIo::new(tls), service).await;
                });
            }
        });
        Self { port, tls, connector }
    }

    pub(crate) fn url(&self) -> String {
        format!("https://localhost:{}", self.port)
    }
}
