//! Enums whose values have names, by which rows and arguments know them.

/// Defines an enum, the list `ALL` of its values, and the name of each.
macro_rules! named {
    ($(#[$of:meta])* $visible:vis enum $type:ident { $($(#[$meta:meta])* $value:ident = $name:literal,)* }) => {
        $(#[$of])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        $visible enum $type { $($(#[$meta])* $value,)* }

        #[allow(dead_code, reason = "no type needs all of these")]
        impl $type {
            /// All values, in their order.
            pub(in crate::experiment) const ALL: [Self; [$($name),*].len()] = [$(Self::$value),*];

            /// The name in rows and in arguments.
            pub(in crate::experiment) const fn name(self) -> &'static str {
                match self { $(Self::$value => $name,)* }
            }

            /// The value of this name.
            pub(in crate::experiment) fn named(name: &str) -> Option<Self> {
                Self::ALL.into_iter().find(|value| value.name() == name)
            }
        }
    };
}
