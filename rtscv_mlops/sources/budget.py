"""The bytes that one source may unpack to, counted as they stream by.

Knows a number; the sizes that files declare are not believed.
"""

from dataclasses import dataclass

from rtscv_mlops.errors import WindowError


@dataclass(slots=True)
class Budget:
    """Bytes spent so far, of those allowed."""

    allowed: int | None = None
    spent: int = 0

    def spend(self, size: int) -> None:
        """Count bytes; one too many is an error."""
        self.spent += size
        if self.allowed is not None and self.spent > self.allowed:
            raise WindowError(
                f"The rows unpack to more than {self.allowed:,} bytes. If that is right, raise "
                "`max_bytes:`; otherwise look for a damaged or hostile file.",
                code="size_cap",
            )
