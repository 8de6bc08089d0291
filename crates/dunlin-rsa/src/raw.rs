//! The RSA operations of AWS-LC without padding: the only module of the workspace with `unsafe` in it.
//!
//! aws-lc-rs decrypts with PKCS#1 v1.5 only as a whole and tells whether the padding was right, which a server of TLS must not
//! know apart from the rest (RFC 5246 §7.4.7.1). AWS-LC's own header says that TLS must use `RSA_NO_PADDING`.
#![allow(unsafe_code, reason = "calls of a C library; each has its reason beside it")]

use std::ptr::NonNull;

use aws_lc_sys::{
    RSA, RSA_NO_PADDING, RSA_decrypt, RSA_encrypt, RSA_free, RSA_private_key_from_bytes,
    RSA_public_key_from_bytes, RSA_size,
};
use dunlin::crypto::CryptoError;
use zeroize::Zeroizing;

/// An RSA key of AWS-LC, which wipes it when it is dropped.
pub struct Key(NonNull<RSA>);

// SAFETY: nothing sets a field of the key once it is made, and AWS-LC guards what its operations cache in it by a lock of its
// own ("RSA objects may be used concurrently", <openssl/rsa.h>).
unsafe impl Send for Key {}
// SAFETY: as above.
unsafe impl Sync for Key {}

impl Drop for Key {
    fn drop(&mut self) {
        // SAFETY: the pointer is from AWS-LC, is ours alone, and nobody uses it any more.
        unsafe { RSA_free(self.0.as_ptr()) }
    }
}

impl Key {
    /// The private key in `der`, an `RSAPrivateKey` (RFC 8017 §A.1.2), which AWS-LC checks.
    ///
    /// # Errors
    /// It is damaged.
    pub fn private(der: &[u8]) -> Result<Self, CryptoError> {
        // SAFETY: the pointer and the length are of one slice, which is only read.
        let key = unsafe { RSA_private_key_from_bytes(der.as_ptr(), der.len()) };
        NonNull::new(key).map(Self).ok_or(CryptoError)
    }

    /// The public key in `der`, an `RSAPublicKey` (RFC 8017 §A.1.1), which AWS-LC checks.
    ///
    /// # Errors
    /// It is damaged.
    pub fn public(der: &[u8]) -> Result<Self, CryptoError> {
        // SAFETY: the pointer and the length are of one slice, which is only read.
        let key = unsafe { RSA_public_key_from_bytes(der.as_ptr(), der.len()) };
        NonNull::new(key).map(Self).ok_or(CryptoError)
    }

    /// The length of the modulus, in bytes.
    pub fn modulus_len(&self) -> usize {
        // SAFETY: the key is alive as long as `self` is.
        let len = unsafe { RSA_size(self.0.as_ptr()) };
        len as usize
    }

    /// `input` to the power of the private exponent, blinded, in constant time.
    ///
    /// # Errors
    /// It is a public key, or `input` is not as long as the modulus, or not between 1 and it.
    pub fn private_power(&self, input: &[u8]) -> Result<Zeroizing<Vec<u8>>, CryptoError> {
        self.power(RSA_decrypt, input)
    }

    /// `input` to the power of the public exponent.
    ///
    /// # Errors
    /// `input` is not as long as the modulus or not below it.
    pub fn public_power(&self, input: &[u8]) -> Result<Vec<u8>, CryptoError> {
        self.power(RSA_encrypt, input).map(|output| output.to_vec())
    }

    fn power(&self, operation: Operation, input: &[u8]) -> Result<Zeroizing<Vec<u8>>, CryptoError> {
        let mut output = Zeroizing::new(vec![0; self.modulus_len()]);
        let (mut len, room) = (0, output.len());
        let (from, to) = (input.as_ptr(), output.as_mut_ptr());
        // SAFETY: the key is alive as long as `self` is. `to` has `room` bytes, of which no more are written, `from` has
        // `input.len()`, which are only read, and neither is kept.
        let done =
            unsafe { operation(self.0.as_ptr(), &raw mut len, to, room, from, input.len(), RSA_NO_PADDING) };
        match done == 1 && len == room {
            true => Ok(output),
            false => Err(CryptoError),
        }
    }
}

/// The form that both operations have: key, length and place and room of the output, input, padding.
type Operation = unsafe extern "C" fn(*mut RSA, *mut usize, *mut u8, usize, *const u8, usize, i32) -> i32;
