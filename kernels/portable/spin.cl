static inline void spin_pause(void)
{
}
