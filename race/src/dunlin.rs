//! Dunlin over AWS-LC.

use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use dunlin::auth::{Psk, PskTable};
use dunlin::resume::Tickets;
use dunlin::{
    ClientAuth, ClientConfig, DtlsConnection, Profile, ProfileBuilder, PskSource, ServerConfig,
    TlsConnection, Trust,
};
use dunlin_awslc::tls12::{
    TLS12_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, TLS12_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
    TLS12_PSK_WITH_AES_128_GCM_SHA256,
};
use dunlin_store::{MemoryClientSessions, MemoryServerSessions};
use dunlin_tests::peer::now;
use dunlin_tests::{KeyType, Leaf, Pki, awslc, localhost};

use crate::handshake::{Handshake, Mtu, PSK, PSK_IDENTITY};
use crate::stack::{End, Maker};

impl End for TlsConnection {
    fn take(&mut self, mut bytes: &[u8]) -> usize {
        let now = now();
        let mut came = 0;
        while !bytes.is_empty() {
            let taken = self.receive(now, bytes).unwrap();
            bytes = &bytes[taken..];
            while !self.received().is_empty() {
                let n = black_box(self.received()).len();
                came += n;
                self.consume(now, n).unwrap();
            }
        }
        // An application takes the events too.
        while self.poll_event().is_some() {}
        came
    }

    fn give(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.transmit());
        self.transmitted(self.transmit().len());
    }

    fn send(&mut self, data: &[u8]) {
        assert_eq!(Self::send(self, data).unwrap(), data.len());
    }

    fn is_connected(&self) -> bool {
        self.negotiated().is_some()
    }

    fn is_resumed(&self) -> bool {
        self.negotiated().unwrap().is_resumed()
    }
}

/// The address of both ends.
const ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 4433);

/// Each datagram follows its length in two bytes.
impl End for DtlsConnection {
    fn take(&mut self, mut bytes: &[u8]) -> usize {
        let now = now();
        let mut came = 0;
        while let Some((length, rest)) = bytes.split_first_chunk() {
            let (datagram, rest) = rest.split_at(u16::from_be_bytes(*length).into());
            bytes = rest;
            self.receive(now, ADDRESS, datagram).unwrap();
            while let Some(data) = self.read() {
                came += black_box(data).len();
            }
        }
        while self.poll_event().is_some() {}
        came
    }

    fn give(&mut self, out: &mut Vec<u8>) {
        while let Some(transmit) = self.poll_transmit(now()) {
            out.extend_from_slice(&u16::try_from(transmit.datagram.len()).unwrap().to_be_bytes());
            out.extend_from_slice(&transmit.datagram);
        }
    }

    fn send(&mut self, data: &[u8]) {
        Self::send(self, data).unwrap();
    }

    fn is_connected(&self) -> bool {
        self.negotiated().is_some()
    }

    fn is_resumed(&self) -> bool {
        self.negotiated().unwrap().is_resumed()
    }
}

fn with_suite(handshake: Handshake) -> ProfileBuilder {
    let tls12 = match handshake {
        Handshake::Full(_) | Handshake::Resumed | Handshake::Dtls(..) | Handshake::DtlsResumed(_) => {
            return Profile::builder(awslc()).cipher_suites(vec![&dunlin_awslc::TLS13_AES_128_GCM_SHA256]);
        }
        Handshake::Tls12(KeyType::Rsa2048) => &TLS12_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
        Handshake::Tls12(_) => &TLS12_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
        Handshake::Tls12Psk => &TLS12_PSK_WITH_AES_128_GCM_SHA256,
    };
    Profile::builder(awslc()).cipher_suites(vec![]).tls12_cipher_suites(vec![tls12])
}

fn psk_configs() -> (ClientConfig, ServerConfig) {
    let profile = || with_suite(Handshake::Tls12Psk).build().unwrap();
    let psk = || Psk::new(PSK_IDENTITY, &PSK).unwrap();
    let keys = PskSource::Here(Arc::new(PskTable::from_iter([psk()])));
    (
        ClientConfig::new(profile()).with_psks(vec![Arc::new(psk())]),
        ServerConfig::psk_only(profile(), keys).unwrap(),
    )
}

fn certificate_configs(handshake: Handshake) -> (ClientConfig, ServerConfig) {
    let pki = Pki::shared(handshake.keys());
    let profile = |leaf: &Leaf| {
        with_suite(handshake)
            .groups(vec![dunlin_awslc::SECP256R1])
            .trust(Trust { x509: Some(pki.trust()), raw_key: None })
            .credentials(vec![leaf.x509(&awslc())])
            .build()
            .unwrap()
    };
    let server = ServerConfig::new(profile(&pki.server)).unwrap();
    (ClientConfig::new(profile(&pki.client)), server.with_client_auth(ClientAuth::Required).unwrap())
}

pub(crate) fn makers(handshake: Handshake) -> Option<(Maker, Maker)> {
    let (client, server) = match handshake {
        Handshake::Tls12Psk => psk_configs(),
        _ => certificate_configs(handshake),
    };
    let (client, server) = if handshake.is_resumed() {
        (
            client.with_sessions(Arc::new(MemoryClientSessions::new(1, 1))),
            server.with_tickets(Tickets::stateful(Arc::new(MemoryServerSessions::new(16)))),
        )
    } else {
        (client, server)
    };
    if let Some(mtu) = handshake.mtu() {
        let mtu = match mtu {
            Mtu::Large => 65507,
            Mtu::Usual => 1200,
        };
        let client = Arc::new(client.with_mtu(mtu).unwrap());
        let server = Arc::new(server.with_mtu(mtu).unwrap().with_cookies(false));
        return Some((
            Box::new(move || Box::new(DtlsConnection::client(&client, localhost(), ADDRESS, now()).unwrap())),
            Box::new(move || Box::new(DtlsConnection::server(&server, ADDRESS, now()))),
        ));
    }
    let client = Arc::new(client);
    let server = Arc::new(server);
    Some((
        Box::new(move || Box::new(TlsConnection::client(&client, localhost(), now()).unwrap())),
        Box::new(move || Box::new(TlsConnection::server(&server, now()))),
    ))
}
