//! The kinds of identities.

named! {
    /// The kind of identity that a side shows.
    pub(super) enum Kind {
        /// A certificate, with the intermediate authority's certificate.
        X509 = "x509",
        /// A verifiable credential, in the message VC.
        Vc = "vc",
        /// A bare DID, in the message DID.
        Did = "did",
    }
}
