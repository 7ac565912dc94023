"""f16 for x86-64 processors without F16C: the conversions that LLVM then calls, as LLVM text on integers.

Method: a half's bits moved to a float's exponent by one addition, subnormals made exact by one float subtraction; the way back
rounds to nearest even by an integer bias, subnormals by a float addition (Giesen, "float->half variants", 2012).
"""

from __future__ import annotations

from everport.targets import Target

_TEXT = """
define float @__extendhfsf2(half %h) nounwind {
  %b = bitcast half %h to i16
  %w = zext i16 %b to i32
  %size = and i32 %w, 32767
  %m = shl i32 %size, 13
  %normal = add i32 %m, 939524096
  %special = add i32 %m, 1879048192
  %e = and i32 %m, 260046848
  %top = icmp eq i32 %e, 260046848
  %low = icmp eq i32 %e, 0
  %s0 = add i32 %m, 947912704
  %s1 = bitcast i32 %s0 to float
  %s2 = fsub float %s1, 0x3F10000000000000
  %small = bitcast float %s2 to i32
  %x = select i1 %top, i32 %special, i32 %normal
  %y = select i1 %low, i32 %small, i32 %x
  %g0 = and i32 %w, 32768
  %g = shl i32 %g0, 16
  %r = or i32 %y, %g
  %f = bitcast i32 %r to float
  ret float %f
}

define half @__truncsfhf2(float %f) nounwind {
  %b = bitcast float %f to i32
  %size = and i32 %b, 2147483647
  %g0 = lshr i32 %b, 16
  %g = and i32 %g0, 32768
  %nan = icmp ugt i32 %size, 2139095040
  %over = icmp uge i32 %size, 1199570944
  %special = select i1 %nan, i32 32256, i32 31744
  %a = bitcast i32 %size to float
  %d0 = fadd float %a, 0x3FE0000000000000
  %d1 = bitcast float %d0 to i32
  %small = sub i32 %d1, 1056964608
  %o0 = lshr i32 %size, 13
  %odd = and i32 %o0, 1
  %n0 = add i32 %size, -939520001
  %n1 = add i32 %n0, %odd
  %normal = lshr i32 %n1, 13
  %low = icmp ult i32 %size, 947912704
  %x = select i1 %low, i32 %small, i32 %normal
  %y = select i1 %over, i32 %special, i32 %x
  %r = or i32 %y, %g
  %t = trunc i32 %r to i16
  %h = bitcast i16 %t to half
  ret half %h
}
"""


def half_texts(target: Target) -> list[str]:
    """The conversions where the target's processors have none."""
    needed = target.level.triple.startswith("x86_64") and "f16c" not in target.features
    return [_TEXT] if needed else []
