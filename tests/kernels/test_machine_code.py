"""The innermost loop is found in machine code, with all kinds of branches."""

from loragate.kernels.machine_code import innermost_loop

NESTED = """
.text.kernel:
        /*0000*/                   LDC R1, c[0x0][0x28] ;
        /*0010*/               @P0 EXIT ;
        /*0020*/                   LDG.E.64 R2, desc[UR4][R2.64] ;
.L_x_1:
        /*0030*/                   LDG.E R4, desc[UR4][R4.64] ;
.L_x_0:
        /*0040*/                   LDGSTS.E.BYPASS.LTC128B.128 [R9], desc[UR6][R10.64], !P1 ;
        /*0050*/                   LDG.E.U16 R6, desc[UR4][R6.64] ;
        /*0060*/              @!P2 BRA `(.L_x_2) ;
        /*0070*/                   FMUL R1, R1, R2 ;
        /*0080*/                   FMUL R1, R1, R2 ;
.L_x_2:
        /*0090*/                   FADD R1, R1, R2 ;
        /*00a0*/               @P3 BRA `(.L_x_0) ;
        /*00b0*/                   FADD R1, R1, R2 ;
        /*00c0*/                   BRA.U UP0, `(.L_x_1) ;
        /*00d0*/                   STG.E desc[UR4][R2.64], R1 ;
        /*00e0*/                   EXIT ;
.L_x_3:
        /*00f0*/                   BRA `(.L_x_3);
"""


def test_the_innermost_loop_by_its_shortest_way() -> None:
    loop = innermost_loop(NESTED)
    assert loop is not None
    assert loop.instructions == 5
    assert loop.loads == {16: 1, 2: 1}
    assert loop.loaded_bytes == 32 * 18
    assert loop.outside == 8, "from the first instruction to the exit, without one iteration"


def test_without_a_loop_that_loads() -> None:
    assert innermost_loop(NESTED.replace("@P3 BRA", "@P3 NOP").replace("BRA.U UP0", "NOP")) is None
