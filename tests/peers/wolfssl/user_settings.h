// The parts of wolfSSL that the peer for DTLS 1.3 needs. Fewer parts compile faster.

#define SINGLE_THREADED
#define NO_WOLFSSL_MEMORY
#define WOLFSSL_IGNORE_FILE_WARN

// The protocol. A server's cookies are on by default.
#define WOLFSSL_TLS13
#define WOLFSSL_NO_TLS12
#define NO_OLD_TLS
#define WOLFSSL_DTLS
#define WOLFSSL_DTLS13
#define WOLFSSL_DTLS_CID
#define DTLS_CID_MAX_SIZE 32
#define WOLFSSL_DTLS_CH_FRAG
#define WOLFSSL_DTLS_MTU
#define WOLFSSL_SEND_HRR_COOKIE
#define HAVE_TLS_EXTENSIONS
#define HAVE_SUPPORTED_CURVES
#define HAVE_SNI
#define HAVE_SESSION_TICKET
#define HAVE_KEYING_MATERIAL
#define HAVE_EXTENDED_MASTER

// The algorithms.
#define HAVE_HKDF
#define HAVE_AESGCM
#define HAVE_AESCCM
#define HAVE_CHACHA
#define HAVE_POLY1305
#define HAVE_ECC
#define HAVE_CURVE25519
#define WC_RSA_PSS
#define WOLFSSL_SHA384
#define WOLFSSL_SHA512
#define WOLFSSL_SP_MATH_ALL
#define WOLFSSL_PUBLIC_MP
#define SP_INT_BITS 4096
#define TFM_TIMING_RESISTANT
#define ECC_TIMING_RESISTANT
#define WC_RSA_BLINDING
#define NO_DH
#define NO_DSA
#define NO_DES3
#define NO_RC4
#define NO_MD4
#define NO_MD5
#define NO_PWDBASED
