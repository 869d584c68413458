//! Planted bugs: ways in which a gateway could serve what is not the object's.

use crate::bug::bugs;

bugs! {
    ConditionSkipped: "condition-skipped", "what is known is served without asking the store";
    ChangeUntold: "change-untold", "a change through the gateway unlinks nothing";
    CleanForgotten: "clean-forgotten", "addresses are given out again with the pages that they had";
    DroppedServed: "dropped-served", "a body goes on being read after its version was dropped";
    FillLate: "fill-late", "a body goes on being kept after its version was dropped";
    FillShifted: "fill-shifted", "some blocks are kept at the next block's place";
    FillPadded: "fill-padded", "a body that broke off is kept as if the rest were zeroes";
    PartUnchecked: "part-unchecked", "what is fetched for a hit may be of any version";
    AddressUnchecked: "address-unchecked", "what is read by addresses may be of any version";
    AddressTorn: "address-torn", "a body by addresses that broke off is taken for whole";
    TimeUnbounded: "time-unbounded", "the store's word is believed for ever";
}
