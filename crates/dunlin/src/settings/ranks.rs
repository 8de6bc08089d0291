//! The ranks that bind all profiles of a server that chooses by the client's identity.

/// The ranks of [`crate::ServerProfiles`], the same in each of its configurations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ranks {
    /// The rank that a client without identity needs: the rank of the default profile.
    pub(crate) anonymous: i32,
    /// No client gets a profile of a lower rank.
    pub(crate) floor: i32,
}
