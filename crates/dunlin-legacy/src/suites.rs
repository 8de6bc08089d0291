//! Declares cipher suites in one line each.

/// Declares suites and the list of all of them: name, number, source, hash, AEAD, key exchange and
/// authentication.
macro_rules! suites {
    (
        $(#[doc = $doc:literal])* $all:ident:
        $($name:ident = $id:ident, $rfc:literal, $hash:ident, $aead:ident, $key_exchange:ident, $authentication:ident;)*
    ) => {
        $(
            #[doc = concat!("`", stringify!($id), "` (", $rfc, ").")]
            pub static $name: dunlin::crypto::Tls12CipherSuite = dunlin::crypto::Tls12CipherSuite {
                id: dunlin::wire::CipherSuite::$id,
                hash: $hash,
                aead: $aead,
                key_exchange: dunlin::crypto::Tls12KeyExchange::$key_exchange,
                authentication: dunlin::crypto::Tls12Authentication::$authentication,
            };
        )*

        $(#[doc = $doc])*
        pub static $all: &[&dunlin::crypto::Tls12CipherSuite] = &[$(&$name),*];
    };
}

pub(crate) use suites;
