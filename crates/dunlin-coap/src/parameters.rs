//! The transmission parameters (RFC 7252 §4.8).

use std::time::Duration;

use crate::error::InvalidParameters;

/// RFC 7252 §4.8.2: the longest time that a datagram is expected to take.
const MAX_LATENCY: Duration = Duration::from_secs(100);

/// The transmission parameters of one side, with the defaults of RFC 7252 §4.8.
///
/// # Examples
/// ```
/// use std::time::Duration;
///
/// use dunlin_coap::Parameters;
///
/// let patient = Parameters { ack_timeout: Duration::from_secs(5), ..Parameters::default() };
/// assert_eq!(patient.max_transmit_wait(), Duration::from_millis(232_500));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// ACK_TIMEOUT: the least time before the first retransmission; 2 s. From 1 ms to 1 h; below 1 s only on
    /// a network of your own.
    pub ack_timeout: Duration,
    /// ACK_RANDOM_FACTOR in percent: the first retransmission comes at random between `ack_timeout` and this
    /// part of it; 150. From 100 to 1000.
    pub ack_random_percent: u32,
    /// MAX_RETRANSMIT: how often a message is retransmitted; 4. At most 20.
    pub max_retransmit: u32,
    /// NSTART: how many messages may wait for an acknowledgement at once; 1. From 1 to 64. Further messages
    /// queue.
    pub nstart: usize,
    /// How long a server waits for its response before it sends an empty acknowledgement; 1 s. It should be
    /// shorter than the client's ACK_TIMEOUT. A later response is a message of its own.
    pub piggyback: Duration,
    /// How long a request waits for its response, after which it fails; 247 s, which is EXCHANGE_LIFETIME.
    pub answer_timeout: Duration,
    /// For how many of the peer's latest messages this side keeps its reply, to repeat it; 64. From 1 to
    /// 65,536.
    pub remembered: usize,
    /// Critical options that the application understands, by number, beside the options of RFC 7252 §5.10
    /// that are not for proxies. An endpoint rejects messages with other critical options (RFC 7252 §5.4.1).
    pub critical_options: Vec<u16>,
}

impl Default for Parameters {
    fn default() -> Self {
        Self {
            ack_timeout: Duration::from_secs(2),
            ack_random_percent: 150,
            max_retransmit: 4,
            nstart: 1,
            piggyback: Duration::from_secs(1),
            answer_timeout: Duration::from_secs(247),
            remembered: 64,
            critical_options: Vec::new(),
        }
    }
}

impl Parameters {
    /// Checks the ranges.
    ///
    /// # Errors
    /// A parameter is out of range.
    pub fn check(&self) -> Result<(), InvalidParameters> {
        let hour = Duration::from_secs(3600);
        let rules = [
            ("ack_timeout", "1 ms to 1 h", (Duration::from_millis(1)..=hour).contains(&self.ack_timeout)),
            ("ack_random_percent", "100 to 1000", (100..=1000).contains(&self.ack_random_percent)),
            ("max_retransmit", "0 to 20", self.max_retransmit <= 20),
            ("nstart", "1 to 64", (1..=64).contains(&self.nstart)),
            ("piggyback", "at most 1 h", self.piggyback <= hour),
            ("answer_timeout", "at least 1 ms", self.answer_timeout >= Duration::from_millis(1)),
            ("remembered", "1 to 65,536", (1..=1 << 16).contains(&self.remembered)),
        ];
        match rules.into_iter().find(|(.., is_kept)| !is_kept) {
            Some((name, range, _)) => Err(InvalidParameters { name, range }),
            None => Ok(()),
        }
    }

    /// The longest first timeout: ACK_TIMEOUT × ACK_RANDOM_FACTOR.
    pub(crate) fn longest_ack_timeout(&self) -> Duration {
        self.ack_timeout * self.ack_random_percent / 100
    }

    /// MAX_TRANSMIT_SPAN: the time from the first transmission of a confirmable message to its last
    /// retransmission.
    pub fn max_transmit_span(&self) -> Duration {
        self.longest_ack_timeout() * ((1 << self.max_retransmit.min(20)) - 1)
    }

    /// MAX_TRANSMIT_WAIT: the time from the first transmission of a confirmable message to the moment when
    /// its sender gives up.
    pub fn max_transmit_wait(&self) -> Duration {
        self.longest_ack_timeout() * ((2 << self.max_retransmit.min(20)) - 1)
    }

    /// EXCHANGE_LIFETIME: the time before a confirmable message's ID may be used again.
    pub fn exchange_lifetime(&self) -> Duration {
        self.max_transmit_span() + 2 * MAX_LATENCY + self.ack_timeout
    }

    /// NON_LIFETIME: the time before a non-confirmable message's ID may be used again.
    pub fn non_lifetime(&self) -> Duration {
        self.max_transmit_span() + MAX_LATENCY
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may fail")]

    use super::*;

    /// The table of RFC 7252 §4.8.2.
    #[test]
    fn derives_the_times_of_the_rfc() {
        let parameters = Parameters::default();
        assert_eq!(parameters.check(), Ok(()));
        assert_eq!(parameters.max_transmit_span().as_secs(), 45);
        assert_eq!(parameters.max_transmit_wait().as_secs(), 93);
        assert_eq!(parameters.non_lifetime().as_secs(), 145);
        assert_eq!(parameters.exchange_lifetime().as_secs(), 247);
    }

    #[test]
    fn explains_a_parameter_out_of_range() {
        let refused = |parameters: Parameters| parameters.check().unwrap_err().to_string();
        let zero = Parameters { ack_timeout: Duration::ZERO, ..Parameters::default() };
        assert_eq!(refused(zero), "CoAP parameter ack_timeout is out of range; use 1 ms to 1 h");
        let none = Parameters { nstart: 0, ..Parameters::default() };
        assert_eq!(refused(none), "CoAP parameter nstart is out of range; use 1 to 64");
        assert!(Parameters { max_retransmit: 21, ..Parameters::default() }.check().is_err());
        assert!(Parameters { ack_random_percent: 99, ..Parameters::default() }.check().is_err());
        assert!(Parameters { remembered: 0, ..Parameters::default() }.check().is_err());
    }
}
