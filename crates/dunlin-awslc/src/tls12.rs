//! The cipher suites of TLS 1.2 (RFC 5246).

dunlin::tls12_cipher_suites!(crate);
