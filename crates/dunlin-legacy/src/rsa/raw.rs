//! AWS-LC's RSA operations without padding. This is the only module of the workspace with `unsafe`.
//!
//! With PKCS#1 v1.5, aws-lc-rs removes the padding itself and reports whether it was valid. A TLS server must
//! treat invalid padding like every other error (RFC 5246 §7.4.7.1). AWS-LC's own header says that TLS must
//! use `RSA_NO_PADDING`.
#![allow(unsafe_code, reason = "calls of a C library; each has its reason beside it")]

use alloc::vec;
use alloc::vec::Vec;
use core::ptr::NonNull;

use aws_lc_sys::{
    RSA, RSA_NO_PADDING, RSA_decrypt, RSA_encrypt, RSA_free, RSA_private_key_from_bytes,
    RSA_public_key_from_bytes, RSA_size,
};
use dunlin::crypto::CryptoError;
use zeroize::Zeroizing;

/// An RSA key of AWS-LC, which AWS-LC wipes on drop.
pub(crate) struct Key(NonNull<RSA>);

// SAFETY: this module never changes a key after its creation, and AWS-LC protects the values that its
// operations cache in the key with its own lock ("RSA objects may be used concurrently", <openssl/rsa.h>).
unsafe impl Send for Key {}
// SAFETY: as above.
unsafe impl Sync for Key {}

impl Drop for Key {
    fn drop(&mut self) {
        // SAFETY: the pointer is from AWS-LC, `self` is its only owner, and nothing uses it after this call.
        unsafe { RSA_free(self.0.as_ptr()) }
    }
}

impl Key {
    /// Parses the private key in `der`, an `RSAPrivateKey` (RFC 8017 §A.1.2). AWS-LC checks it.
    ///
    /// # Errors
    /// `der` is not a valid private key.
    pub(crate) fn private(der: &[u8]) -> Result<Self, CryptoError> {
        // SAFETY: the pointer and the length describe one slice, which AWS-LC only reads.
        let key = unsafe { RSA_private_key_from_bytes(der.as_ptr(), der.len()) };
        NonNull::new(key).map(Self).ok_or(CryptoError)
    }

    /// Parses the public key in `der`, an `RSAPublicKey` (RFC 8017 §A.1.1). AWS-LC checks it.
    ///
    /// # Errors
    /// `der` is not a valid public key.
    pub(crate) fn public(der: &[u8]) -> Result<Self, CryptoError> {
        // SAFETY: the pointer and the length describe one slice, which AWS-LC only reads.
        let key = unsafe { RSA_public_key_from_bytes(der.as_ptr(), der.len()) };
        NonNull::new(key).map(Self).ok_or(CryptoError)
    }

    /// The length of the modulus, in bytes.
    pub(crate) fn modulus_len(&self) -> usize {
        // SAFETY: the key is alive as long as `self` is.
        let len = unsafe { RSA_size(self.0.as_ptr()) };
        len as usize
    }

    /// Raises `input` to the power of the private exponent, with blinding and in constant time.
    ///
    /// # Errors
    /// This is a public key, `input` is not as long as the modulus, or `input` is not a number between 1 and
    /// the modulus.
    pub(crate) fn private_power(&self, input: &[u8]) -> Result<Zeroizing<Vec<u8>>, CryptoError> {
        self.power(RSA_decrypt, input)
    }

    /// Raises `input` to the power of the public exponent.
    ///
    /// # Errors
    /// `input` is not as long as the modulus, or not a smaller number.
    pub(crate) fn public_power(&self, input: &[u8]) -> Result<Vec<u8>, CryptoError> {
        self.power(RSA_encrypt, input).map(|output| output.to_vec())
    }

    fn power(&self, operation: Operation, input: &[u8]) -> Result<Zeroizing<Vec<u8>>, CryptoError> {
        let mut output = Zeroizing::new(vec![0; self.modulus_len()]);
        let (mut len, room) = (0, output.len());
        let from = input.as_ptr();
        let to = output.as_mut_ptr();
        // SAFETY: the key lives as long as `self`. AWS-LC writes at most `room` bytes to `to`, which has that
        // many, only reads the `input.len()` bytes of `from`, and keeps neither pointer.
        let done =
            unsafe { operation(self.0.as_ptr(), &raw mut len, to, room, from, input.len(), RSA_NO_PADDING) };
        if done == 1 && len == room { Ok(output) } else { Err(CryptoError) }
    }
}

/// The signature of both operations: key; length, address and size of the output; address and length of the
/// input; padding.
type Operation = unsafe extern "C" fn(*mut RSA, *mut usize, *mut u8, usize, *const u8, usize, i32) -> i32;
