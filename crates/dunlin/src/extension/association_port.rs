//! `association_port` (docs/association-ports.md): the client offers to use another port of the server for an
//! association without connection IDs, and the server says which one. A protected record of the same name has
//! the content of the answer.

use super::{Context, Extension};
use crate::error::{Error, Malformed};
use crate::wire::{ExtensionType, Field, Reader, Writer};

/// A way to another port. An offer has the bits of several ways, an answer the bit of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PortMode {
    /// Implicit port communication: the server has answered from its new port.
    Ipc = 1,
    /// Temporary connected socket: the client moves to the new port after the handshake.
    Tcs = 2,
}

/// The client's offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Offer {
    /// The bits of the modes. The receiver ignores those that it does not know.
    pub(crate) modes: u8,
}

impl Offer {
    pub(crate) const fn of(mode: PortMode) -> Self {
        Self { modes: mode as u8 }
    }

    pub(crate) const fn has(self, mode: PortMode) -> bool {
        self.modes & mode as u8 != 0
    }
}

impl Extension for Offer {
    const TYPE: ExtensionType = ExtensionType::ASSOCIATION_PORT;
    const IN: &'static [Context] = &[Context::ClientHello];

    fn read(r: &mut Reader<'_>) -> Result<Self, Error> {
        Ok(Self { modes: r.u8()? })
    }

    fn write(&self, w: &mut Writer) {
        w.u8(self.modes);
    }
}

/// The server's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) mode: PortMode,
    /// The port, at the address to which the client has sent; zero for IPC.
    pub(crate) port: u16,
}

impl Answer {
    /// The length of its content, in bytes.
    pub(crate) const LEN: usize = 3;
}

impl Extension for Answer {
    const TYPE: ExtensionType = ExtensionType::ASSOCIATION_PORT;
    const IN: &'static [Context] = &[Context::EncryptedExtensions, Context::Tls12ServerHello];

    fn read(r: &mut Reader<'_>) -> Result<Self, Error> {
        match (r.u8()?, r.u16()?) {
            (1, 0) => Ok(Self { mode: PortMode::Ipc, port: 0 }),
            (2, port @ 1..) => Ok(Self { mode: PortMode::Tcs, port }),
            _ => Err(Malformed::Value(Field::Extension(ExtensionType::ASSOCIATION_PORT)).into()),
        }
    }

    fn write(&self, w: &mut Writer) {
        w.u8(self.mode as u8);
        w.u16(self.port);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read<T: Extension>(bytes: &[u8]) -> Result<T, Error> {
        Reader::all(bytes, Field::Extension(ExtensionType::ASSOCIATION_PORT), |r| T::read(r))
    }

    fn written(value: &impl Extension) -> alloc::vec::Vec<u8> {
        let mut w = Writer::new();
        value.write(&mut w);
        w.finish().unwrap()
    }

    #[test]
    fn reads_what_it_writes() {
        let ipc = PortMode::Ipc;
        let tcs = PortMode::Tcs;
        for (mode, bits) in [(ipc, 0b01), (tcs, 0b10)] {
            assert_eq!(written(&Offer::of(mode)), [bits]);
            assert_eq!(read::<Offer>(&[bits]).unwrap(), Offer::of(mode));
        }
        let answers = [
            (Answer { mode: ipc, port: 0 }, [1, 0, 0]),
            (Answer { mode: tcs, port: 0x1634 }, [2, 0x16, 0x34]),
        ];
        for (answer, bytes) in answers {
            assert_eq!(written(&answer), bytes);
            assert_eq!(read::<Answer>(&bytes).unwrap(), answer);
        }
        assert!(read::<Offer>(&[0xff]).unwrap().has(ipc) && !read::<Offer>(&[0xfc]).unwrap().has(tcs));
    }

    #[test]
    fn rejects_answers_that_contradict_themselves() {
        for bytes in [
            &[1, 0, 1][..],
            &[2, 0, 0],
            &[0, 0, 0],
            &[3, 22, 52],
            &[4, 22, 52],
            &[2, 22],
            &[2, 22, 52, 0],
            &[],
        ] {
            assert!(read::<Answer>(bytes).is_err(), "{bytes:?}");
        }
        assert!(read::<Offer>(&[]).is_err() && read::<Offer>(&[1, 2]).is_err());
    }
}
