//! The message layer in virtual time, with the messages of RFC 7252's appendix A and of RFC 7641.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail")]

use std::time::Duration;

use dunlin::Instant;
use dunlin_coap::coap_lite::{CoapOption, MessageClass, MessageType, Packet, RequestType, ResponseType};
use dunlin_coap::{CoapError, ExchangeEvent, ExchangeId, Exchanges, Parameters, RequestId};

const START: Instant = Instant(1_000_000);

/// RFC 7252, figure 17: the request and the response in its acknowledgement.
const GET: &[u8] = b"\x41\x01\x7d\x35\x20\xbbtemperature";
const CONTENT: &[u8] = b"\x61\x45\x7d\x35\x20\xff22.3 C";

fn exchanges_with(parameters: Parameters) -> Exchanges {
    Exchanges::new(parameters, 1024, 1).unwrap()
}

fn exchanges() -> Exchanges {
    exchanges_with(Parameters::default())
}

fn sent(exchanges: &mut Exchanges) -> Vec<Vec<u8>> {
    std::iter::from_fn(|| exchanges.poll_transmit()).collect()
}

fn after(seconds: u64) -> Instant {
    START + Duration::from_secs(seconds)
}

/// The only request that has come.
fn requested(exchanges: &mut Exchanges) -> (RequestId, Packet) {
    let Some(ExchangeEvent::Request(id, packet)) = exchanges.poll_event() else { panic!("no request") };
    (id, packet)
}

fn get() -> Packet {
    let mut message = Packet::new();
    message.header.code = MessageClass::Request(RequestType::Get);
    message.add_option(CoapOption::UriPath, b"temperature".to_vec());
    message
}

fn response(payload: &[u8]) -> Packet {
    let mut message = Packet::new();
    message.header.code = MessageClass::Response(ResponseType::Content);
    message.payload = payload.to_vec();
    message
}

fn observable(payload: &[u8]) -> Packet {
    let mut message = response(payload);
    message.set_observe_value(0);
    message
}

/// A message of the peer about `request`: its type in the first byte, code, message ID and the rest after the
/// token.
fn about(request: &[u8], typ: u8, code: u8, id: u16, rest: &[u8]) -> Vec<u8> {
    let token = &request[4..8];
    let [high, low] = id.to_be_bytes();
    [&[0x44 | typ << 4, code, high, low], token, rest].concat()
}

fn id(message: &[u8]) -> u16 {
    u16::from_be_bytes([message[2], message[3]])
}

fn outcome(exchanges: &mut Exchanges, of: ExchangeId) -> Option<Result<Packet, CoapError>> {
    match exchanges.poll_event()? {
        ExchangeEvent::Response(id, packet) if id == of => Some(Ok(packet)),
        ExchangeEvent::Failed(id, error) if id == of => Some(Err(error)),
        other => panic!("{other:?}"),
    }
}

#[test]
fn answers_in_the_acknowledgement_as_in_the_rfc() {
    let mut server = exchanges();
    server.receive(START, GET);
    let (request, packet) = requested(&mut server);
    assert_eq!(packet.get_option(CoapOption::UriPath).unwrap().front().unwrap(), b"temperature");
    server.respond(START, request, response(b"22.3 C")).unwrap();
    assert_eq!(sent(&mut server), [CONTENT]);
    assert_eq!(server.poll_timeout(), None);
}

/// RFC 7252, figure 19: the acknowledgement is lost.
#[test]
fn repeats_its_reply_to_a_duplicate_and_handles_the_request_once() {
    let mut server = exchanges();
    server.receive(START, GET);
    let (request, _) = requested(&mut server);
    server.respond(START, request, response(b"22.3 C")).unwrap();
    sent(&mut server);
    server.receive(after(2), GET);
    assert_eq!(sent(&mut server), [CONTENT]);
    assert!(server.poll_event().is_none());
    // EXCHANGE_LIFETIME later, the same message ID is a new message.
    server.receive(after(247), GET);
    requested(&mut server);
}

/// RFC 7252, figure 21: an acknowledgement first, and the response in a message of its own.
#[test]
fn acknowledges_first_if_the_response_takes_long() {
    let mut server = exchanges();
    server.receive(START, b"\x41\x01\x7d\x38\x53\xbbtemperature");
    let (request, _) = requested(&mut server);
    assert_eq!(server.poll_timeout(), Some(after(1)));
    server.handle_timeout(after(1));
    assert_eq!(sent(&mut server), [b"\x60\x00\x7d\x38"]);
    // A duplicate gets the acknowledgement again.
    server.receive(after(2), b"\x41\x01\x7d\x38\x53\xbbtemperature");
    assert_eq!(sent(&mut server), [b"\x60\x00\x7d\x38"]);
    server.respond(after(3), request, response(b"22.3 C")).unwrap();
    let message = sent(&mut server).remove(0);
    assert_eq!((&message[..2], &message[4..]), (&b"\x41\x45"[..], &b"\x53\xff22.3 C"[..]));
    // It is confirmable: sent again until the client acknowledges it.
    let deadline = server.poll_timeout().unwrap();
    server.handle_timeout(deadline);
    assert_eq!(sent(&mut server).remove(0), message);
    server.receive(deadline, &[0x60, 0, message[2], message[3]]);
    assert_eq!(server.poll_timeout(), None);
}

#[test]
fn a_duplicate_of_an_unanswered_request_is_acknowledged_at_once() {
    let mut server = exchanges();
    server.receive(START, GET);
    requested(&mut server);
    assert!(sent(&mut server).is_empty());
    server.receive(START, GET);
    assert_eq!(sent(&mut server), [b"\x60\x00\x7d\x35"]);
    assert!(server.poll_event().is_none());
}

#[test]
fn answers_a_non_confirmable_request_alike() {
    let mut server = exchanges();
    let request = b"\x51\x01\x7d\x40\x75\xbbtemperature";
    server.receive(START, request);
    let (of, _) = requested(&mut server);
    server.receive(START, request);
    assert!(server.poll_event().is_none());
    server.respond(START, of, response(b"22.3 C")).unwrap();
    let message = sent(&mut server).remove(0);
    assert_eq!((message[0], message[1], &message[4..]), (0x51, 0x45, &b"\x75\xff22.3 C"[..]));
    assert_eq!(server.poll_timeout(), None);
}

#[test]
fn retransmits_a_request_as_the_rfc_says_and_gives_up() {
    let mut client = exchanges();
    let exchange = client.request(START, get()).unwrap();
    let first = sent(&mut client).remove(0);
    assert_eq!(first[0], 0x44);
    let mut times = vec![START];
    while client.is_open(exchange) {
        let deadline = client.poll_timeout().unwrap();
        client.handle_timeout(deadline);
        sent(&mut client).iter().for_each(|again| assert_eq!(*again, first));
        times.push(deadline);
    }
    let gaps: Vec<u64> = times.windows(2).map(|pair| pair[1].0 - pair[0].0).collect();
    // RFC 7252 §4.2: the first timeout is random between 2 and 3 seconds, and doubles four times.
    assert!((2000..=3000).contains(&gaps[0]), "{gaps:?}");
    assert_eq!(gaps, [1, 2, 4, 8, 16].map(|factor| gaps[0] * factor));
    assert!(matches!(outcome(&mut client, exchange), Some(Err(CoapError::Timeout(_)))));
    assert_eq!(client.poll_timeout(), None);
}

#[test]
fn a_message_that_does_not_fit_any_more_is_lost_until_it_fits() {
    let mut client = exchanges();
    let exchange = client.request(START, get()).unwrap();
    client.set_max_message(8);
    assert!(sent(&mut client).is_empty());
    client.set_max_message(1024);
    let deadline = client.poll_timeout().unwrap();
    client.handle_timeout(deadline);
    assert_eq!(sent(&mut client).len(), 1);
    assert!(client.is_open(exchange));
}

#[test]
fn first_timeouts_differ() {
    let first = |seed| {
        let mut client = Exchanges::new(Parameters::default(), 1024, seed).unwrap();
        client.request(START, get()).unwrap();
        client.poll_timeout().unwrap()
    };
    assert!((1..20).any(|seed| first(seed) != first(0)));
}

#[test]
fn takes_a_response_in_the_acknowledgement() {
    let mut client = exchanges();
    let exchange = client.request(START, get()).unwrap();
    let request = sent(&mut client).remove(0);
    // The token and the message ID must both match (RFC 7252 §5.3.2).
    let mut wrong = request.clone();
    wrong[4] ^= 1;
    client.receive(START, &about(&wrong, 2, 0x45, id(&request), b"\xffno"));
    client.receive(START, &about(&request, 2, 0x45, id(&request).wrapping_add(1), b"\xffno"));
    assert!(client.poll_event().is_none());
    client.receive(START, &about(&request, 2, 0x45, id(&request), b"\xff22.3 C"));
    assert_eq!(outcome(&mut client, exchange).unwrap().unwrap().payload, b"22.3 C");
    assert_eq!(client.poll_timeout(), None);
    assert_eq!(client.discarded(), 2);
}

#[test]
fn takes_a_separate_response_once_and_acknowledges_it() {
    let mut client = exchanges();
    let exchange = client.request(START, get()).unwrap();
    let request = sent(&mut client).remove(0);
    client.receive(START, &[0x60, 0, request[2], request[3]]);
    // The request is no longer retransmitted, but its response can still time out.
    assert_eq!(client.poll_timeout(), Some(after(247)));
    let separate = about(&request, 0, 0x45, 0xad7b, b"\xff22.3 C");
    client.receive(after(5), &separate);
    assert_eq!(outcome(&mut client, exchange).unwrap().unwrap().payload, b"22.3 C");
    assert_eq!(sent(&mut client), [b"\x60\x00\xad\x7b"]);
    client.receive(after(6), &separate);
    assert_eq!(sent(&mut client), [b"\x60\x00\xad\x7b"]);
    assert!(client.poll_event().is_none());
}

#[test]
fn a_separate_response_before_the_acknowledgement_ends_retransmission() {
    let mut client = exchanges();
    let exchange = client.request(START, get()).unwrap();
    let request = sent(&mut client).remove(0);
    client.receive(START, &about(&request, 1, 0x45, 7, b"\xff22.3 C"));
    assert!(outcome(&mut client, exchange).unwrap().is_ok());
    assert_eq!(client.poll_timeout(), None);
    assert!(sent(&mut client).is_empty());
}

#[test]
fn a_request_without_a_response_fails() {
    for is_confirmable in [true, false] {
        let mut client = exchanges();
        let mut message = get();
        if !is_confirmable {
            message.header.set_type(MessageType::NonConfirmable);
        }
        let exchange = client.request(START, message).unwrap();
        let request = sent(&mut client).remove(0);
        if is_confirmable {
            client.receive(START, &[0x60, 0, request[2], request[3]]);
        }
        while let Some(deadline) = client.poll_timeout() {
            client.handle_timeout(deadline);
            assert!(sent(&mut client).is_empty());
        }
        let Some(Err(CoapError::Timeout(waited))) = outcome(&mut client, exchange) else {
            panic!("no timeout")
        };
        assert_eq!(waited.as_secs(), 247);
    }
}

#[test]
fn a_reset_ends_a_request() {
    let mut client = exchanges();
    let exchange = client.request(START, get()).unwrap();
    let request = sent(&mut client).remove(0);
    client.receive(START, &[0x70, 0, request[2], request[3]]);
    assert!(matches!(outcome(&mut client, exchange), Some(Err(CoapError::Reset))));
    assert_eq!(client.poll_timeout(), None);
}

#[test]
fn only_nstart_requests_are_on_their_way() {
    let mut client = exchanges();
    for _ in 0..3 {
        client.request(START, get()).unwrap();
    }
    let first = sent(&mut client);
    assert_eq!(first.len(), 1);
    // An acknowledgement lets the next one go.
    client.receive(START, &[0x60, 0, first[0][2], first[0][3]]);
    assert_eq!(sent(&mut client).len(), 1);
    let mut client = exchanges_with(Parameters { nstart: 3, ..Parameters::default() });
    for _ in 0..4 {
        client.request(START, get()).unwrap();
    }
    assert_eq!(sent(&mut client).len(), 3);
    let refused = (0..100).find_map(|_| client.request(START, get()).err());
    assert!(matches!(refused, Some(CoapError::Busy)));
}

#[test]
fn message_ids_do_not_repeat_within_their_lifetime() {
    let mut client = exchanges();
    let send = |client: &mut Exchanges, now: Instant| {
        let result = client.request(now, get());
        let request = sent(client);
        if let Some(request) = request.first() {
            client.receive(now, &about(request, 2, 0x45, id(request), &[]));
            assert!(client.poll_event().is_some());
        }
        result.map(|_| id(&request[0]))
    };
    let mut seen = std::collections::BTreeSet::new();
    let refused = loop {
        match send(&mut client, START) {
            Ok(id) => assert!(seen.insert(id), "{id} twice"),
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, CoapError::Busy));
    assert!(seen.len() > 60_000);
    assert!(send(&mut client, after(246)).is_err());
    assert!(send(&mut client, after(247)).is_ok());
}

#[test]
fn rejects_what_it_cannot_read_or_does_not_expect() {
    let mut server = exchanges();
    for (message, reply) in [
        // A "ping", an unexpected response, a token of 9 bytes, a reserved class, an empty message with a
        // token, a payload marker without payload, an option that is cut off.
        (&b"\x40\x00\x12\x34"[..], true),
        (b"\x44\x45\x12\x34tokn\xffhello", true),
        (b"\x49\x01\x12\x34123456789", true),
        (b"\x40\x20\x12\x34", true),
        (b"\x41\x00\x12\x34t", true),
        (b"\x40\x01\x12\x34\xb1a\xff", true),
        (b"\x40\x01\x12\x34\xb5a", true),
        // Non-confirmable: only an unexpected response is rejected aloud.
        (b"\x50\x00\x12\x34", false),
        (b"\x50\x20\x12\x34", false),
        (b"\x50\x01\x12\x34\xb5a", false),
        (b"\x50\x45\x12\x34", true),
        // A request in an acknowledgement, a reset with a response, acknowledgements of nothing, another
        // version, a fragment.
        (b"\x60\x01\x12\x34", false),
        (b"\x70\x45\x12\x34", false),
        (b"\x60\x00\x12\x34", false),
        (b"\x64\x45\x12\x34tokn", false),
        (b"\x80\x01\x12\x34", false),
        (b"\x40\x01\x12", false),
        (b"", false),
    ] {
        server.receive(START, message);
        let expected = if reply { vec![b"\x70\x00\x12\x34".to_vec()] } else { vec![] };
        assert_eq!(sent(&mut server), expected, "{message:02x?}");
        assert!(server.poll_event().is_none(), "{message:02x?}");
    }
    assert_eq!(server.discarded(), 18);
}

#[test]
fn refuses_critical_options_and_methods_that_it_does_not_know() {
    for (message, code) in [
        // Block1 (27), Proxy-Scheme (39), method 0.08.
        (&b"\x41\x03\x00\x01t\xd1\x0e\x08"[..], 0x82),
        (b"\x41\x01\x00\x02t\xd4\x1acoap", 0xa5),
        (b"\x41\x08\x00\x03t\xb1a", 0x85),
    ] {
        let mut server = exchanges();
        server.receive(START, message);
        assert!(server.poll_event().is_none());
        assert_eq!(sent(&mut server), [[0x61, code, 0, message[3], b't']]);
        // The non-confirmable message gets no answer because of an option, but one because of the method.
        let mut non = message.to_vec();
        non[0] = 0x51;
        server.receive(after(300), &non);
        assert_eq!(sent(&mut server).len(), usize::from(code == 0x85));
    }
    let parameters = Parameters { critical_options: vec![27], ..Parameters::default() };
    let mut server = exchanges_with(parameters);
    server.receive(START, b"\x41\x03\x00\x01t\xd1\x0e\x08");
    requested(&mut server);
}

#[test]
fn a_response_with_an_unknown_critical_option_fails_the_request() {
    for typ in [0, 1, 2] {
        let mut client = exchanges();
        let exchange = client.request(START, get()).unwrap();
        let request = sent(&mut client).remove(0);
        // Block2 (23).
        client.receive(START, &about(&request, typ, 0x45, id(&request), b"\xd1\x0a\x08\xffpart"));
        assert!(matches!(outcome(&mut client, exchange), Some(Err(CoapError::BadOption(23)))));
        assert_eq!(client.poll_timeout(), None);
        let rejected = sent(&mut client);
        assert_eq!(rejected.first().map(|m| m[0]), (typ != 2).then_some(0x70));
    }
}

#[test]
fn a_response_that_does_not_fit_becomes_an_error() {
    let mut server = exchanges();
    server.receive(START, GET);
    let (request, _) = requested(&mut server);
    let error = server.respond(START, request, response(&[0; 2000])).unwrap_err();
    assert!(matches!(error, CoapError::TooLong { length: 2006, limit: 1024 }), "{error}");
    assert_eq!(sent(&mut server), [b"\x61\xa0\x7d\x35\x20\xffresponse too long"]);
    let mut message = get();
    message.payload = vec![0; 2000];
    assert!(matches!(exchanges().request(START, message), Err(CoapError::TooLong { .. })));
    assert!(matches!(exchanges().request(START, response(b"")), Err(CoapError::NotARequest)));
}

#[test]
fn a_request_left_without_a_response_is_acknowledged() {
    let mut server = exchanges();
    server.receive(START, GET);
    let (request, _) = requested(&mut server);
    server.ignore(START, request);
    assert_eq!(sent(&mut server), [b"\x60\x00\x7d\x35"]);
}

#[test]
fn limits_the_unanswered_requests_of_a_peer() {
    let mut server = exchanges();
    for n in 0..100 {
        server.receive(START, &[0x41, 1, 0, n, n]);
    }
    let events = std::iter::from_fn(|| server.poll_event()).count();
    assert_eq!((events, server.discarded()), (64, 36));
}

/// A client that observes, and its request.
fn observing() -> (Exchanges, ExchangeId, Vec<u8>) {
    let mut client = exchanges();
    let mut message = get();
    message.set_observe_value(0);
    let exchange = client.request(START, message).unwrap();
    let request = sent(&mut client).remove(0);
    client.receive(START, &about(&request, 2, 0x45, id(&request), b"\x61\x0c\xff22.9 Cel"));
    assert_eq!(outcome(&mut client, exchange).unwrap().unwrap().payload, b"22.9 Cel");
    (client, exchange, request)
}

/// RFC 7641, figure 3.
#[test]
fn a_client_takes_notifications_in_order_until_the_last() {
    let (mut client, exchange, request) = observing();
    // An observation does not time out.
    assert_eq!(client.poll_timeout(), None);
    client.receive(after(1), &about(&request, 1, 0x45, 100, b"\x61\x2c\xff22.8 Cel"));
    assert_eq!(outcome(&mut client, exchange).unwrap().unwrap().payload, b"22.8 Cel");
    // An older one is acknowledged, but not delivered.
    client.receive(after(2), &about(&request, 0, 0x45, 101, b"\x61\x1c\xff22.7 Cel"));
    assert!(client.poll_event().is_none());
    assert_eq!(sent(&mut client), [b"\x60\x00\x00\x65"]);
    // 128 seconds later, every number is newer.
    client.receive(after(130), &about(&request, 1, 0x45, 102, b"\x61\x1c\xff23.1 Cel"));
    assert_eq!(outcome(&mut client, exchange).unwrap().unwrap().payload, b"23.1 Cel");
    // An error is the last one.
    client.receive(after(131), &about(&request, 0, 0x84, 103, b""));
    assert!(outcome(&mut client, exchange).unwrap().is_ok());
    assert!(!client.is_open(exchange));
}

#[test]
fn a_client_rejects_notifications_that_it_no_longer_wants() {
    for typ in [0, 1] {
        let (mut client, exchange, request) = observing();
        client.cancel(START, exchange);
        client.receive(after(1), &about(&request, typ, 0x45, 100, b"\x61\x2c\xff22.8 Cel"));
        assert_eq!(sent(&mut client), [b"\x70\x00\x00\x64"]);
        assert!(client.poll_event().is_none());
    }
}

/// A server with an observer, whose token is 0x4a (RFC 7641, figure 3).
fn observed() -> (Exchanges, RequestId) {
    let mut server = exchanges();
    server.receive(START, b"\x41\x01\x30\x39\x4a\x60\x5btemperature");
    let (request, _) = requested(&mut server);
    assert!(server.respond(START, request, observable(b"22.9 Cel")).unwrap());
    assert_eq!(sent(&mut server), [b"\x61\x45\x30\x39\x4a\x60\xff22.9 Cel"]);
    (server, request)
}

#[test]
fn a_server_notifies_an_observer_one_notification_at_a_time() {
    let (mut server, observer) = observed();
    for number in 1..=3 {
        server.notify(START, observer, response(b"22.8 Cel")).unwrap();
        let message = sent(&mut server).remove(0);
        let rest = [&[0x4a, 0x61, number, 0xff][..], b"22.8 Cel"].concat();
        assert_eq!((&message[..2], &message[4..]), (&b"\x41\x45"[..], &rest[..]));
        assert!(matches!(server.notify(START, observer, response(b"")), Err(CoapError::Busy)));
        server.receive(START, &[0x60, 0, message[2], message[3]]);
        assert!(matches!(server.poll_event(), Some(ExchangeEvent::Notified(id)) if id == observer));
    }
}

#[test]
fn an_observer_ends_by_reset_silence_deregistration_replacement_or_error() {
    let is_cancelled = |server: &mut Exchanges, observer| {
        let event = server.poll_event();
        assert!(matches!(event, Some(ExchangeEvent::Cancelled(id)) if id == observer), "{event:?}");
        server.notify(START, observer, response(b"")).unwrap();
        assert!(sent(server).is_empty());
    };
    let (mut server, observer) = observed();
    server.notify(START, observer, response(b"")).unwrap();
    let message = sent(&mut server).remove(0);
    server.receive(START, &[0x70, 0, message[2], message[3]]);
    is_cancelled(&mut server, observer);

    let (mut server, observer) = observed();
    server.notify(START, observer, response(b"")).unwrap();
    while let Some(deadline) = server.poll_timeout() {
        server.handle_timeout(deadline);
        sent(&mut server);
    }
    is_cancelled(&mut server, observer);

    let (mut server, observer) = observed();
    server.receive(START, b"\x41\x01\x30\x40\x4a\x61\x01\x5btemperature");
    is_cancelled(&mut server, observer);
    requested(&mut server);

    let (mut server, observer) = observed();
    server.receive(START, b"\x41\x01\x30\x40\x4a\x60\x5btemperature");
    let (again, _) = requested(&mut server);
    assert!(server.respond(START, again, observable(b"22.9 Cel")).unwrap());
    sent(&mut server);
    is_cancelled(&mut server, observer);

    let (mut server, observer) = observed();
    let mut error = response(b"");
    error.header.code = MessageClass::Response(ResponseType::NotFound);
    server.notify(START, observer, error).unwrap();
    let message = sent(&mut server).remove(0);
    // Without the Observe option.
    assert_eq!((&message[..2], &message[4..]), (&b"\x41\x84"[..], &b"\x4a"[..]));
    server.receive(START, &[0x60, 0, message[2], message[3]]);
    is_cancelled(&mut server, observer);
}

#[test]
fn a_response_without_the_option_registers_no_observer() {
    let mut server = exchanges();
    server.receive(START, b"\x41\x01\x30\x39\x4a\x60\x5btemperature");
    let (request, _) = requested(&mut server);
    assert!(!server.respond(START, request, response(b"22.9 Cel")).unwrap());
    // A client that has not asked is no observer either.
    server.receive(START, GET);
    let (request, _) = requested(&mut server);
    assert!(!server.respond(START, request, observable(b"22.3 C")).unwrap());
    assert_eq!(sent(&mut server).last().unwrap(), CONTENT);
}

/// Bytes that differ from call to call.
fn noise() -> impl FnMut() -> u8 {
    let mut state = 1_u32;
    move || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    }
}

#[test]
fn takes_options_of_every_length_and_number() {
    let mut server =
        exchanges_with(Parameters { critical_options: (0..4000).collect(), ..Parameters::default() });
    for (id, (number, length)) in
        [(1, 0), (12, 12), (13, 13), (14, 268), (268, 269), (269, 270), (270, 600), (3999, 900)]
            .into_iter()
            .enumerate()
    {
        let mut message = get();
        message.add_option(CoapOption::from(number), vec![7; length]);
        message.header.message_id = id as u16;
        server.receive(START, &message.to_bytes().unwrap());
        let (_, packet) = requested(&mut server);
        assert_eq!(packet.get_option(CoapOption::from(number)).unwrap().back().unwrap(), &vec![7; length]);
    }
}

/// Neither random messages nor damaged ones do more than is answered to them.
#[test]
fn random_messages_do_no_harm() {
    let mut noise = noise();
    for round in 0..2000 {
        let mut both = exchanges();
        let mut request = get();
        request.set_observe_value(0);
        both.request(START, request).unwrap();
        let own = sent(&mut both).remove(0);
        for _ in 0..20 {
            let mut message = match round % 4 {
                0 => (0..noise() % 40).map(|_| noise()).collect(),
                1 => GET.to_vec(),
                2 => about(&own, noise() % 4, 0x45, id(&own), b"\x61\x0c\xff22.9 Cel"),
                _ => b"\x41\x01\x30\x39\x4a\x60\x5btemperature".to_vec(),
            };
            if let Some(at) = usize::from(noise()).checked_rem(message.len()) {
                message[at] = noise();
            }
            both.receive(START, &message);
            while let Some(event) = both.poll_event() {
                if let ExchangeEvent::Request(request, _) = event {
                    let _ = both.respond(START, request, observable(b"x"));
                }
            }
            assert!(sent(&mut both).len() <= 2);
        }
        while let Some(deadline) = both.poll_timeout() {
            both.handle_timeout(deadline);
        }
    }
}

#[test]
fn an_acknowledgement_answers_only_the_request_with_both_its_id_and_its_token() {
    let mut client = exchanges_with(Parameters { nstart: 2, ..Parameters::default() });
    let [first, second] = [(); 2].map(|()| client.request(START, get()).unwrap());
    let requests = sent(&mut client);
    client.receive(START, &about(&requests[0], 2, 0x45, id(&requests[1]), b"\xffno"));
    assert!(client.poll_event().is_none() && client.is_open(first) && client.is_open(second));
    // An empty acknowledgement with a token is malformed (RFC 7252 §4.1).
    client.receive(START, &about(&requests[0], 2, 0, id(&requests[0]), b""));
    client.handle_timeout(after(3));
    assert_eq!(sent(&mut client), requests);
}

#[test]
fn a_cancelled_request_is_not_retransmitted() {
    let mut client = exchanges();
    let first = client.request(START, get()).unwrap();
    let second = client.request(START, get()).unwrap();
    sent(&mut client);
    client.cancel(START, first);
    // The next one takes its place.
    assert_eq!(sent(&mut client).len(), 1);
    client.cancel(START, second);
    assert_eq!(client.poll_timeout(), None);
}

/// RFC 7641 §3.4: numbers are compared modulo 2^24.
#[test]
fn a_client_orders_notifications_across_the_end_of_their_numbers() {
    let (mut client, exchange, request) = observing();
    let numbers: [(&[u8], bool); 6] = [
        (b"\x63\x80\x00\x00", true),
        (b"\x63\xff\xff\xff", true),
        (b"\x63\xff\xff\xff", false),
        (b"\x60", true),
        (b"\x63\x80\x00\x01", false),
        (b"\x61\x01", true),
    ];
    for (id, (number, is_newer)) in (100..).zip(numbers) {
        client.receive(after(1), &about(&request, 1, 0x45, id, number));
        assert_eq!(outcome(&mut client, exchange).is_some(), is_newer, "{number:02x?}");
    }
}

#[test]
fn only_a_successful_answer_to_a_get_registers_an_observer() {
    let mut error = observable(b"");
    error.header.code = MessageClass::Response(ResponseType::NotFound);
    for (method, response) in [(3, observable(b"")), (1, error)] {
        let mut server = exchanges();
        server.receive(START, &[0x41, method, 0, 1, 0x4a, 0x60]);
        let (request, _) = requested(&mut server);
        assert!(!server.respond(START, request, response).unwrap());
        // The answer has no Observe option.
        assert_eq!(sent(&mut server).remove(0).len(), 5);
    }
}

#[test]
fn limits_the_observations_of_a_peer() {
    let mut server = exchanges_with(Parameters { remembered: 1000, ..Parameters::default() });
    let observers = (0..100).filter(|n| {
        server.receive(START, &[0x41, 1, 0, *n, *n, 0x60]);
        let (request, _) = requested(&mut server);
        server.respond(START, request, observable(b"")).unwrap()
    });
    assert_eq!(observers.count(), 64);
}

#[test]
fn remembers_only_the_latest_messages() {
    let mut server = exchanges_with(Parameters { remembered: 2, ..Parameters::default() });
    for (number, is_new) in [(1, true), (2, true), (1, false), (3, true), (2, false), (1, true)] {
        server.receive(START, &[0x41, 1, 0, number, 0x4a]);
        assert_eq!(server.poll_event().is_some(), is_new, "{number}");
    }
}
